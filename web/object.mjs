// SPDX-License-Identifier: Apache-2.0
/* What the files of a link tell about data: the object file that link-time optimization made says which functions name which data
 * (relocations), the linker's map where each piece of data went. Formats: WebAssembly core specification 5, Binary Format; Linking.md of
 * WebAssembly/tool-conventions; wasm-ld --Map. */

/** Reads from bytes, in order. @param {Uint8Array} bytes @param {number} at */
function reader(bytes, at) {
  const text = new TextDecoder();
  const it = {
    at,
    byte: () => bytes[it.at++],
    number() { /* LEB128, unsigned */
      let value = 0;
      for (let scale = 1; ; scale *= 128) {
        const byte = bytes[it.at++];
        value += (byte & 127) * scale;
        if (byte < 128) return value;
      }
    },
    string() {
      const length = it.number();
      it.at += length;
      return text.decode(bytes.subarray(it.at - length, it.at));
    },
    /** @template T @param {() => T} one @returns {T[]} */
    list: (one) => Array.from({ length: it.number() }, one),
    /** Of content that stands behind its length. @returns {{from: number, to: number}} */
    content() {
      const length = it.number();
      it.at += length;
      return { from: it.at - length, to: it.at };
    },
  };
  return it;
}

const CUSTOM = 0, IMPORTS = 2, CODE = 10, DATA = 11, DATA_COUNT = 12;
const I32_CONST = 0x41, END = 0x0b;

/** @typedef {{id: number, name: string, whole: number, from: number, to: number}} Section whole: where its id stands; from, to: its content */

/** @param {Uint8Array} bytes a module or an object @returns {Section[]} */
function sectionsOf(bytes) {
  const list = [];
  for (const r = reader(bytes, 8); r.at < bytes.length;) {
    const whole = r.at;
    const id = r.byte();
    const { from, to } = r.content();
    const inside = reader(bytes, from);
    list.push({ id, name: id === CUSTOM ? inside.string() : '', whole, from: inside.at, to });
  }
  return list;
}

/** @param {Section[]} sections @param {number} id @param {string} [name] */
function sectionOf(sections, id, name = '') {
  const found = sections.find((section) => section.id === id && section.name === name);
  if (!found) throw new Error(`No section ${name || id}.`);
  return found;
}

/** @param {Uint8Array} bytes a module */
export const codeOf = (bytes) => sectionOf(sectionsOf(bytes), CODE);

/** @param {WebAssembly.Module} module */
const importedFunctions = (module) => WebAssembly.Module.imports(module).filter(({ kind }) => kind === 'function').length;

/** The functions that a module defines, by the names of its name section. @param {Uint8Array<ArrayBuffer>} bytes @returns {string[]} */
export function functionNames(bytes) {
  const section = sectionOf(sectionsOf(bytes), CUSTOM, 'name');
  const imported = importedFunctions(new WebAssembly.Module(bytes));
  /** @type {string[]} */
  const names = [];
  for (const r = reader(bytes, section.from); r.at < section.to;) {
    const isOfFunctions = r.byte() === 1;
    const { from } = r.content();
    if (!isOfFunctions) continue;
    const inside = reader(bytes, from);
    inside.list(() => { names[inside.number()] = inside.string(); });
  }
  return names.slice(imported);
}

/** @typedef {{at: number, bytes: Uint8Array}} Segment data, and the address where it begins */

/** The data of a linked module. @param {Uint8Array} bytes @returns {Segment[]} */
export function segmentsOf(bytes) {
  const section = sectionsOf(bytes).find(({ id }) => id === DATA);
  if (!section) return [];
  const r = reader(bytes, section.from);
  return r.list(() => {
    const isActive = r.byte() === 0 && r.byte() === I32_CONST;
    const at = r.number();
    if (!isActive || r.byte() !== END) throw new Error('A data segment that is not at a fixed address.');
    const { from, to } = r.content();
    return { at, bytes: bytes.subarray(from, to) };
  });
}

/** @param {number} value @param {boolean} isSigned @returns {number[]} LEB128 */
function leb(value, isSigned = false) {
  const bytes = [];
  for (let left = value; ; left = Math.floor(left / 128)) {
    if (left < (isSigned ? 64 : 128)) return [...bytes, left];
    bytes.push((left & 127) | 128);
  }
}

/** The module with these data in place of its own. @param {Uint8Array} bytes @param {Segment[]} segments */
export function withSegments(bytes, segments) {
  const content = Buffer.concat([Buffer.from(leb(segments.length)), ...segments.flatMap(({ at, bytes: data }) =>
    [Buffer.from([0, I32_CONST, ...leb(at, true), END, ...leb(data.length)]), data])]);
  const section = Buffer.concat([Buffer.from([DATA, ...leb(content.length)]), content]);
  const others = sectionsOf(bytes).filter(({ id }) => id !== DATA && id !== DATA_COUNT);
  const whole = (/** @type {Section} */ { whole: from, to }) => bytes.subarray(from, to);
  return Buffer.concat([bytes.subarray(0, 8), ...others.filter(({ id }) => id !== CUSTOM).map(whole), section,
    ...others.filter(({ id }) => id === CUSTOM).map(whole)]);
}

/* Relocations that put an address of data into what they stand in, and those with an addend. */
const ADDRESSES = new Set([3, 4, 5, 11, 14, 15, 16, 17, 18, 21, 22, 23, 25]);
const HAS_ADDEND = new Set([...ADDRESSES, 8, 9]);
const MOST_RELOCATION = 26;
const UNDEFINED = 0x10, EXPLICIT_NAME = 0x40, LOCAL = 0x02;
const SEGMENT_INFO = 5, SYMBOL_TABLE = 8;
const FUNCTION = 0, DATUM = 1, SECTION = 3;

/** Pieces of data of an object file: which can be named from outside of it, and what names which.
 * @param {Uint8Array<ArrayBuffer>} bytes of an object of which every datum is a piece of its own (-fdata-sections)
 * @returns {{pieces: string[], named: Set<number>, byFunction: Map<string, Set<number>>, byPiece: Set<number>[]}} */
export function namesOfData(bytes) {
  const sections = sectionsOf(bytes);
  const code = sectionOf(sections, CODE);
  const data = sectionOf(sections, DATA);
  const imports = sectionOf(sections, IMPORTS);
  let imported = 0;
  {
    const r = reader(bytes, imports.from);
    const limits = () => { if (r.byte() & 1) r.number(); r.number(); };
    r.list(() => {
      r.string();
      r.string();
      const kind = r.byte();
      if (kind === 0) imported++;
      if (kind === 0) r.number(); /* function: type */
      else if (kind === 1) { r.byte(); limits(); } /* table */
      else if (kind === 2) limits(); /* memory */
      else if (kind === 3) { r.byte(); r.byte(); } /* global */
      else { r.byte(); r.number(); } /* tag */
    });
  }
  const ofBodies = reader(bytes, code.from);
  const bodies = ofBodies.list(() => ofBodies.content());
  const ofData = reader(bytes, data.from);
  const contents = ofData.list(() => {
    if (ofData.byte() !== 0) throw new Error('A passive data segment in an object.');
    ofData.byte();
    ofData.number();
    ofData.byte();
    return ofData.content();
  });

  /** @type {string[]} */
  let pieces = [];
  /** @type {{kind: number, flags: number, name: string, index: number}[]} index: of a function, or of the piece */
  let symbols = [];
  const linking = sectionOf(sections, CUSTOM, 'linking');
  const r = reader(bytes, linking.from);
  if (r.number() !== 2) throw new Error('Another version of linking.');
  while (r.at < linking.to) {
    const kind = r.byte();
    const { from } = r.content();
    const inside = reader(bytes, from);
    if (kind === SEGMENT_INFO) {
      pieces = inside.list(() => {
        const name = inside.string();
        inside.number();
        inside.number();
        return name;
      });
    } else if (kind === SYMBOL_TABLE) {
      symbols = inside.list(() => {
        const symbol = { kind: inside.byte(), flags: inside.number(), name: '', index: -1 };
        if (symbol.kind === DATUM) {
          symbol.name = inside.string();
          if (!(symbol.flags & UNDEFINED)) {
            symbol.index = inside.number();
            inside.number();
            inside.number();
          }
        } else {
          symbol.index = inside.number();
          if (symbol.kind !== SECTION && (!(symbol.flags & UNDEFINED) || symbol.flags & EXPLICIT_NAME)) symbol.name = inside.string();
        }
        return symbol;
      });
    }
  }

  /** Which pieces each of the parts of a section names. @param {Section} section @param {{from: number, to: number}[]} parts */
  function namedIn(section, parts) {
    /** @type {Set<number>[]} */
    const named = parts.map(() => new Set());
    const relocations = sections.find(({ name }) => name === `reloc.${section.id === CODE ? 'CODE' : 'DATA'}`);
    if (!relocations) return named;
    const list = reader(bytes, relocations.from);
    if (sections[list.number()] !== section) throw new Error('Relocations of another section.');
    let part = 0;
    list.list(() => {
      const type = list.number();
      const at = section.from + list.number();
      const symbol = symbols[list.number()];
      if (HAS_ADDEND.has(type)) list.number();
      if (type > MOST_RELOCATION) throw new Error(`Relocation ${type} is not known.`);
      while (at >= parts[part].to) part++;
      if (at < parts[part].from) throw new Error('A relocation outside of functions and data.');
      if (ADDRESSES.has(type) && symbol.index >= 0) named[part].add(symbol.index);
    });
    if (list.at !== relocations.to) throw new Error('Relocations were not understood.');
    return named;
  }

  const byBody = namedIn(code, bodies);
  /** @type {Map<string, Set<number>>} */
  const byFunction = new Map();
  for (const { kind, flags, name, index } of symbols) if (kind === FUNCTION && !(flags & UNDEFINED)) byFunction.set(name, byBody[index - imported]);
  const named = new Set(symbols.filter(({ kind, flags, index }) => kind === DATUM && index >= 0 && !(flags & LOCAL)).map(({ index }) => index));
  return { pieces, named, byFunction, byPiece: namedIn(data, contents) };
}

/** What the linker says of that object: where it put its pieces, and which functions come from elsewhere.
 * @param {string} map what wasm-ld --Map wrote @returns {{places: Map<string, {from: number, to: number}>, others: Set<string>}} */
export function readMap(map) {
  const places = new Map();
  const others = new Set();
  let isData = false;
  for (const line of map.split('\n')) {
    if (/ DATA$/.test(line)) isData = true;
    const found = /^ *([0-9a-f]+|-) +[0-9a-f]+ +([0-9a-f]+) +(.*):\(([^()]*)\)$/.exec(line); /* address, offset, size, archive(object):(name) */
    if (!found) continue;
    const [, address, size, object, name] = found;
    const from = parseInt(address, 16);
    if (!isData && object !== 'lto.tmp') others.add(name);
    if (!isData || object !== 'lto.tmp') continue;
    if (places.has(name)) throw new Error(`Two pieces of data are called ${name}.`);
    places.set(name, { from, to: from + parseInt(size, 16) });
  }
  return { places, others };
}
