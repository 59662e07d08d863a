// SPDX-License-Identifier: Apache-2.0
/* A text field over a list: the standard combobox. Typing narrows, arrows move, Enter takes, Escape leaves. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { narrow } from '../catalogue.js';
import { Icon } from './marks.jsx';

/** @param {{id: string, label: string, word: string, choices: import('../types.js').Choice[], value: string, shown: string,
 *   empty: string, offer?: (typed: string) => {title: string, run: () => void} | null, error?: string, opens?: () => void, choose: (name: string, choice: import('../types.js').Choice) => any}} props offer: where there is none, or the nearest alone; opens: when the list does, or soon may */
export function Picker({ id, label, word, choices, value, shown, empty, offer, error, opens, choose }) {
  const [open, setOpen] = useState(false);
  const [typed, setTyped] = useState(/** @type {string | null} */ (null));
  const [takes, setTakes] = useState(false); /* Enter, before the choices were there */
  const [chosen, setAt] = useState(/** @type {number | null} */ (null)); /* null: the value */
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  const list = useRef(/** @type {HTMLUListElement | null} */ (null));

  const found = narrow(choices, typed ?? '');
  const at = chosen ?? Math.max(0, found.findIndex((choice) => choice.name === value));
  const elsewhere = open && (found.length === 0 || found[0].taken) ? offer?.(typed ?? '') : null; /* behind what is found */
  const isElsewhere = !!elsewhere && at === found.length;

  useEffect(() => { if (open) opens?.(); }, [open]);
  useEffect(() => {
    if (takes && choices.length > 0) take(found[at]);
  }, [choices.length > 0]);
  useEffect(() => {
    if (open) list.current?.children[at]?.scrollIntoView({ block: 'nearest' });
  }, [open, at]);

  function show() {
    setTyped(null);
    setAt(null);
    setOpen(true);
  }
  function close() {
    setOpen(false);
    setTyped(null);
    setTakes(false);
  }
  /** @param {import('../types.js').Choice | undefined} choice */
  async function take(choice) {
    if (!choice) return;
    close();
    await choose(choice.name, choice);
    requestAnimationFrame(() => { if (document.activeElement === input.current) input.current?.select(); }); /* the next word replaces it */
  }
  /** @param {{run: () => void}} other */
  function leaveFor(other) {
    close();
    other.run();
  }
  /** @param {KeyboardEvent} event */
  function key(event) {
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 };
    const by = moves[/** @type {keyof typeof moves} */ (event.key)];
    if (by) {
      event.preventDefault();
      if (!open) show();
      else setAt(Math.min(found.length - (elsewhere ? 0 : 1), Math.max(0, at + by)));
    } else if (event.key === 'Enter' && open) {
      event.preventDefault();
      if (elsewhere && isElsewhere) leaveFor(elsewhere);
      else if (choices.length > 0) take(found[at]);
      else setTakes(typed !== null);
    } else if (event.key === 'Escape' && open) {
      event.stopPropagation();
      close();
    }
  }

  return (
    <div class="field picker" data-setting={word}>
      <div class="label-row"><label for={id}>{label}</label><code>{word}</code></div>
      <div class="picker-box">
        <input id={id} ref={input} type="text" role="combobox" autocomplete="off" spellcheck={false}
          aria-expanded={open} aria-controls={`${id}-list`} aria-autocomplete="list"
          aria-activedescendant={isElsewhere ? `${id}-elsewhere` : open && found[at] ? `${id}-${found[at].name}` : undefined}
          aria-invalid={!!error} aria-describedby={error ? `${id}-error` : undefined}
          value={typed ?? shown}
          onPointerEnter={opens} onFocus={(event) => { opens?.(); event.currentTarget.select(); }}
          onMouseDown={(event) => {
            if (open) return;
            event.preventDefault(); /* the press would put a cursor where the whole text is selected */
            show();
            input.current?.focus();
            input.current?.select();
          }}
          onInput={(event) => { setTyped(event.currentTarget.value); setAt(0); setOpen(true); }}
          onKeyDown={key} onBlur={close} />
        <Icon name="down" />
        <ul id={`${id}-list`} ref={list} role="listbox" aria-label={label} class="picker-list" hidden={!open}>
          {open && found.map((choice, index) => (
            <li key={choice.name} id={`${id}-${choice.name}`} role="option" aria-selected={choice.name === value}
              class={index === at ? 'at' : undefined}
              onMouseDown={(event) => event.preventDefault()} onMouseMove={() => { if (at !== index) setAt(index); }}
              onClick={() => take(choice)}>
              <span class="picker-title">{choice.title}</span><span class="picker-note">{choice.note}</span>
            </li>
          ))}
          {open && found.length === 0 && <li class="picker-none" role="option" aria-selected="false" aria-disabled="true">{empty}</li>}
          {elsewhere && <li id={`${id}-elsewhere`} role="option" aria-selected="false" class={isElsewhere ? 'at' : undefined} onMouseDown={(event) => event.preventDefault()}
            onMouseMove={() => { if (!isElsewhere) setAt(found.length); }} onClick={() => leaveFor(elsewhere)}>
            <span class="picker-title">{elsewhere.title}</span></li>}
        </ul>
      </div>
      {error && <p class="field-error" id={`${id}-error`}>{error}</p>}
    </div>
  );
}
