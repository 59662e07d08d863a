/* Tests of the built page: node tests/browser/run.mjs FOLDER [--update] [--only PART-OF-A-NAME] */
import { parseArgs } from 'node:util';
import { runAll, startChromium } from './harness.mjs';
import './logic.mjs';
import { coreTests } from './core.mjs';
import { doorTests } from './doors.mjs';
import { firefoxTests } from './firefox.mjs';
import { pageTests } from './page.mjs';

const { values, positionals } = parseArgs({
  options: { update: { type: 'boolean' }, only: { type: 'string' } }, allowPositionals: true,
});
if (positionals.length !== 1) {
  console.error('usage: node tests/browser/run.mjs FOLDER [--update] [--only PART-OF-A-NAME]');
  process.exit(2);
}
coreTests(positionals[0]);
const browser = await startChromium();
const closePage = await pageTests(positionals[0], values.update ?? false);
const closeDoors = await doorTests(positionals[0], browser);
const closeFirefox = await firefoxTests(positionals[0]);
const failed = await runAll(values.only);
await Promise.all([closePage(), closeDoors(), closeFirefox(), browser.close()]);
process.exit(failed ? 1 : 0);
