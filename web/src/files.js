/* What a dropped or pasted file is, by its content. The core reads it; this only names it and refuses what no one
 * could read here. */

/** @typedef {{name: string, text: string, kind: 'model' | 'processor' | 'other'}} OpenFile */

export const MOST_FILES = 20;
const MOST_BYTES = 32 * 1024 * 1024;

/** Files that are often dropped by mistake: how their first bytes look, and the way out. */
const WRONG_BYTES = [
  { is: /^\x80[\x02-\x05]/, say: 'is a Python pickle; opening it would mean running code. Save it as JSON instead.' },
  { is: /^PK\x03\x04/, say: 'is a zip archive or a PyTorch checkpoint. Drop the model’s config.json instead.' },
  { is: /^GGUF/, say: 'is a GGUF file. Drop the original model’s config.json instead.' },
  { is: /^(\xff\xfe|\xfe\xff)/, say: 'is UTF-16 text. Save it as UTF-8.' },
  { is: /^[\s\S]{8}\{"/, say: 'is a safetensors file. Drop the config.json that lies beside it.' },
];

const WRONG_TEXT = [
  { is: /"nbformat"\s*:/, say: 'is a notebook. Drop the model’s config.json instead.' },
  { is: /"(tokenizer_class|added_tokens_decoder)"\s*:/, say: 'belongs to a tokenizer, which has no effect on memory. Drop config.json instead.' },
  { is: /"(devDependencies|lockfileVersion)"\s*:/, say: 'is an npm package. Drop the model’s config.json instead.' },
  { is: /"weight_map"\s*:/, say: 'is a weight index. Drop the config.json that lies beside it.' },
];

/** @param {string} text @returns {OpenFile['kind']} */
function kindOf(text) {
  if (/"(image_processor_type|feature_extractor_type|image_mean|crop_size)"\s*:/.test(text)) return 'processor';
  if (/"(model_type|architectures|hidden_size|text_config)"\s*:/.test(text)) return 'model';
  return 'other';
}

/** @param {string} name @param {string} text @returns {{file?: OpenFile, problem?: string}} */
export function fromText(name, text) {
  if (text.charCodeAt(0) === 0xfeff) text = text.slice(1);
  if (text.trim() === '') return { problem: `${name} is empty.` };
  const wrong = WRONG_TEXT.find(({ is }) => is.test(text));
  if (wrong) return { problem: `${name} ${wrong.say}` };
  return { file: { name, text, kind: kindOf(text) } };
}

/** By the name's ending, or a first line of `key:`. @param {string} name @param {string} text */
export function isYaml(name, text) {
  const first = text.split('\n', 200).map((line) => line.trim()).find((line) => line && !/^([#%]|---)/.test(line));
  return /\.ya?ml$/.test(name) || /^[\w-]*:(\s|$)/.test(first ?? '');
}

/** The core takes JSON: YAML is turned into it. @param {string} name @param {string} text
 * @returns {Promise<{file?: OpenFile, problem?: string}>} */
export async function readText(name, text) {
  if (!isYaml(name, text)) return fromText(name, text);
  const { toJson } = await import('./yaml.js');
  try {
    return fromText(name, toJson(text.replace(/^\ufeff/, '')));
  } catch (error) {
    return { problem: `${name}: ${error instanceof Error ? error.message : error}` };
  }
}

/** @param {File} file @returns {Promise<{file?: OpenFile, problem?: string}>} */
export async function fromFile(file) {
  const head = new Uint8Array(await file.slice(0, 16).arrayBuffer());
  const bytes = String.fromCharCode(...head);
  const wrong = WRONG_BYTES.find(({ is }) => is.test(bytes));
  if (wrong) return { problem: `${file.name} ${wrong.say}` };
  if (file.size > MOST_BYTES) return { problem: `${file.name} is larger than 32 MB. Drop the model’s config.json instead.` };
  return readText(file.name, await file.text());
}
