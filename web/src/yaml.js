// SPDX-License-Identifier: Apache-2.0
/* YAML to JSON text, as json.dumps(yaml.safe_load(text)) of PyYAML reads it: YAML 1.1, scalars by its SafeLoader's rules; the same as
 * native/yaml.c. A chunk of its own, for pages on which a YAML file is opened. */
import { isAlias, isMap, isPair, isScalar, isSeq, parseAllDocuments } from 'yaml';

const MOST_TEXT = 4 * 1024 * 1024; /* characters */
const MOST_VALUES = 200_000;
const MOST_KEYS = 4096;
const DEPTH = 64;

/* yaml/resolver.py */
const TRUE = /^(?:yes|Yes|YES|true|True|TRUE|on|On|ON)$/;
const FALSE = /^(?:no|No|NO|false|False|FALSE|off|Off|OFF)$/;
const NULL = /^(?:~|null|Null|NULL|)$/;
const INT = /^(?:[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+|[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+)$/;
const FLOAT = /^(?:[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$/;

/* yaml/reader.py */
const NOT_TEXT = /[^\x09\x0A\x0D\x20-\x7E\x85\xA0-\uD7FF\uD800-\uDFFF\uE000-\uFFFD]/;

const STANDARD = 'tag:yaml.org,2002:';
const AS_WRITTEN = ['int', 'float', 'bool', 'null', 'timestamp'];

/** @param {string} text */
const sixties = (text) => text.split(':').reduce((value, part) => value * 60 + Number(part), 0);

/** @param {string} text @returns {string} JSON */
function integer(text) {
  const sign = text.startsWith('-') ? '-' : '';
  const digits = text.replace(/^[-+]/, '').replaceAll('_', '');
  let value;
  if (digits.includes(':')) value = BigInt(sixties(digits));
  else if (/^0[bx]/.test(digits)) value = BigInt(digits);
  else if (/^0./.test(digits)) value = BigInt(`0o${digits.slice(1)}`);
  else value = BigInt(digits);
  return value ? sign + value : '0';
}

/** @param {string} text @returns {string} JSON */
function real(text) {
  const sign = text.startsWith('-') ? '-' : '';
  const digits = text.replace(/^[-+]/, '').replaceAll('_', '').toLowerCase();
  if (digits === '.inf') return `"${sign}inf"`;
  if (digits === '.nan') return '"nan"';
  if (digits.includes(':')) return sign + sixties(digits);
  return sign + digits.replace(/^0+(?=\d)/, '').replace(/^\./, '0.').replace(/\.(?!\d)/, '.0');
}

/** @param {string} text @returns {string} JSON */
function plain(text) {
  if (TRUE.test(text)) return 'true';
  if (FALSE.test(text)) return 'false';
  if (NULL.test(text)) return 'null';
  if (INT.test(text)) return integer(text);
  if (FLOAT.test(text)) return real(text);
  return JSON.stringify(text);
}

/** @param {string} tag @returns {never} */
function unknown(tag) {
  throw new Error(`could not determine a constructor for the tag '${tag.slice(0, 60)}'`);
}

/** @param {any} node @param {boolean} isKey @returns {string} JSON */
function scalar(node, isKey) {
  const text = String(node.source ?? node.value ?? '');
  const isOpen = node.tag === '!';
  const isPlain = isOpen || (node.type === 'PLAIN' && !node.tag);
  if (node.tag && !isOpen) {
    const name = node.tag.startsWith(STANDARD) ? node.tag.slice(STANDARD.length) : '';
    if (name === 'str') return JSON.stringify(node.value ?? '');
    if (!AS_WRITTEN.includes(name)) unknown(node.tag);
    return plain(text);
  }
  if (isPlain && text === '=') unknown(`${STANDARD}value`);
  if (isPlain && text === '<<' && !isKey) throw new Error('<< is no value');
  return isPlain ? plain(text) : JSON.stringify(node.value);
}

/** @param {any} key */
const isMerge = (key) => isScalar(key) && key.type === 'PLAIN' && !key.tag && key.value === '<<';

/** @param {any} key @returns {string} a JSON string */
function nameOf(key) {
  if (key && !isScalar(key)) throw new Error('a key that is not a scalar');
  const json = key ? scalar(key, true) : 'null';
  return json.startsWith('"') ? json : JSON.stringify(json);
}

class Writer {
  /** @param {any} document */
  constructor(document) {
    this.document = document;
    this.values = 0;
    /** @type {any[]} */
    this.above = []; /* nodes inside of which the present one stands */
    this.anchors = new Map();
  }

  /** @param {number} more */
  count(more) {
    this.values += more;
    if (this.values > MOST_VALUES) throw new Error(`aliases expand to more than ${MOST_VALUES} values`);
  }

  /** Anchors and what they name, in order; one name may stand once. @param {any} node @param {number} depth */
  collect(node, depth) {
    if (depth > DEPTH) throw new Error(`nested deeper than ${DEPTH}`);
    if (!node) return;
    if (isAlias(node)) {
      if (!this.anchors.has(node.source)) throw new Error(`found undefined alias '${node.source.slice(0, 60)}'`);
      return;
    }
    if (node.anchor) {
      if (this.anchors.has(node.anchor)) throw new Error(`found duplicate anchor '${node.anchor.slice(0, 60)}'`);
      this.anchors.set(node.anchor, node);
    }
    for (const item of node.items ?? []) {
      if (isPair(item)) {
        this.collect(item.key, depth + 1);
        this.collect(item.value, depth + 1);
      } else {
        this.collect(item, depth + 1);
      }
    }
  }

  /** @param {any} node */
  target(node) {
    if (!isAlias(node)) return node;
    const found = this.anchors.get(node.source);
    if (this.above.includes(found)) throw new Error(`the alias '${node.source.slice(0, 60)}' is inside of what it refers to`);
    return found;
  }

  /** A map's keys and values with what << brings, later ones over earlier ones: SafeConstructor.flatten_mapping.
   * @param {any} map @param {Map<string, any>} into @param {number} depth */
  flatten(map, into, depth) {
    if (depth > DEPTH) throw new Error(`aliases expand to more than ${MOST_VALUES} values`);
    this.count(2 * map.items.length);
    for (const { key, value } of map.items) {
      if (!isMerge(key)) continue;
      const from = this.target(value);
      const maps = isMap(from) ? [from] : isSeq(from) ? from.items.map((item) => this.target(item)).reverse() : [null];
      for (const one of maps) {
        if (!isMap(one)) throw new Error('<< expects a mapping or a list of mappings');
        this.flatten(one, into, depth + 1);
      }
    }
    for (const { key, value } of map.items) {
      if (isMerge(key)) continue;
      into.set(nameOf(this.target(key)), value);
      if (into.size > MOST_KEYS) throw new Error(`a mapping of more than ${MOST_KEYS} keys`);
    }
  }

  /** @param {any} from @param {number} depth @returns {string} JSON */
  write(from, depth) {
    const node = this.target(from);
    this.count(1);
    if (depth > DEPTH) throw new Error(`nested deeper than ${DEPTH}`);
    if (!node) return 'null';
    if (isScalar(node)) return scalar(node, false);
    const tag = /** @type {string | undefined} */ (node.tag);
    const tags = isMap(node) ? ['map', 'set'] : ['seq']; /* a set is a mapping whose values are null */
    if (tag && tag !== '!' && !tags.some((name) => tag === STANDARD + name)) unknown(tag);
    this.above.push(node);
    let json;
    if (isMap(node)) {
      const flat = new Map();
      this.flatten(node, flat, depth);
      json = `{${[...flat].map(([key, value]) => `${key}:${this.write(value, depth + 1)}`).join(',')}}`;
    } else {
      json = `[${node.items.map((/** @type {any} */ item) => this.write(item, depth + 1)).join(',')}]`;
    }
    this.above.pop();
    return json;
  }
}

/** @param {string} text @returns {string} JSON; what is wrong is thrown as one line */
export function toJson(text) {
  if (text.length > MOST_TEXT) throw new Error('is YAML of more than 4 MiB');
  if (NOT_TEXT.test(text)) throw new Error('control characters are not allowed');
  const documents = /** @type {any[]} */ ([...parseAllDocuments(text, { schema: 'failsafe', version: '1.1', uniqueKeys: false, logLevel: 'silent', merge: false })]);
  const problem = documents.flatMap((document) => document.errors)[0];
  if (problem) {
    const [at] = problem.linePos ?? [];
    throw new Error(`${at ? `line ${at.line}, column ${at.col}: ` : ''}${problem.message.split('\n')[0].replace(/ at line \d+, column \d+:?$/, '')}`);
  }
  const texts = documents.map((document) => {
    const writer = new Writer(document);
    writer.collect(document.contents, 0);
    return writer.write(document.contents, 0);
  });
  const kept = texts.filter((json, at) => at === 0 || json !== 'null');
  if (kept.length < 2) return kept[0] ?? 'null';
  // several manifests of Kubernetes are the list that kubectl makes of them
  const areManifests = documents.every((document, at) => !kept.includes(texts[at]) || (isMap(document.contents) && document.contents.has('kind')));
  if (!areManifests) throw new Error('expected a single document in the stream');
  return `{"apiVersion":"v1","kind":"List","items":[${kept.join(',')}]}`;
}
