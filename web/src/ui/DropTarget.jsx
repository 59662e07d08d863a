// SPDX-License-Identifier: Apache-2.0
/* Files dropped anywhere, and text pasted outside a field. */
import { useEffect, useState } from 'preact/hooks';
import { isCommand, isYaml, ofDrop } from '../files.js';
import { expectMore } from '../parts.js';
import { take, takeText } from './Settings.jsx';

export function DropTarget() {
  const [over, setOver] = useState(false);
  useEffect(() => {
    let depth = 0;
    const hasFiles = (/** @type {DragEvent} */ event) => !!event.dataTransfer?.types.includes('Files');
    const on = {
      dragenter(/** @type {DragEvent} */ event) {
        if (!hasFiles(event)) return;
        event.preventDefault();
        depth++;
        setOver(true);
        expectMore();
      },
      dragover(/** @type {DragEvent} */ event) {
        if (hasFiles(event)) event.preventDefault();
      },
      dragleave(/** @type {DragEvent} */ event) {
        if (hasFiles(event) && --depth <= 0) {
          depth = 0;
          setOver(false);
        }
      },
      drop(/** @type {DragEvent} */ event) {
        if (!hasFiles(event)) return;
        event.preventDefault();
        depth = 0;
        setOver(false);
        if (event.dataTransfer) ofDrop(event.dataTransfer).then(take);
      },
      paste(/** @type {ClipboardEvent} */ event) {
        if (/** @type {HTMLElement} */ (event.target).closest('input, textarea, select')) return;
        if (event.clipboardData?.files.length) return take(event.clipboardData.files);
        const text = event.clipboardData?.getData('text/plain') ?? '';
        const link = /^\S*?#?((?:[\w.]+=\S*&)?v=\d+|z=1\.[\w-]+)$/.exec(text.trim());
        if (/^\s*\{/.test(text)) takeText('config.json', text);
        else if (link) location.hash = `#${text.trim().replace(/^[^#]*#/, '')}`;
        else if (isYaml('', text)) takeText('pasted.yaml', text);
        else isCommand(text).then((is) => { if (is) takeText('pasted.sh', text); });
      },
    };
    for (const [name, run] of Object.entries(on)) document.addEventListener(name, /** @type {any} */ (run));
    return () => { for (const [name, run] of Object.entries(on)) document.removeEventListener(name, /** @type {any} */ (run)); };
  }, []);
  return over && (
    <div class="drop-over"><p><b>Drop a model’s config.json</b>, the files that start its training, or a recorded run;<br />several at once, or a folder. They are read in this page and not sent anywhere.</p></div>
  );
}
