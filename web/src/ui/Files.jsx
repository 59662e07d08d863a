// SPDX-License-Identifier: Apache-2.0
/* The opened files: what of each was used, what has no effect, what may matter and is not played. */
import { closeFile, justOpened, setWord, undo } from '../changes.js';
import { editing, files, report } from '../state.js';
import { Icon } from './marks.jsx';

/** @typedef {import('../types.js').FileKey} FileKey */

const KINDS = { job: 'a job', model: 'a model', processor: 'an image processor', other: '' };

/** @param {{title: string, keys: FileKey[], kind: string}} props */
const Keys = ({ title, keys, kind }) => (keys.length === 0 ? null : (
  <div class={`file-keys is-${kind}`}>
    <h4>{title}</h4>
    <ul>
      {keys.map(({ key, value, setting, taken, note }) => (
        <li key={key}>
          <code>{key}{value !== undefined && `: ${value}`}</code>
          {setting && kind === 'used' && <span class="muted"> → {setting}{taken !== undefined && `=${taken}`}</span>}
          {note && <span class="muted"> {note}</span>}
          {kind === 'overruled' && setting && taken !== undefined && (
            <button type="button" class="button small" onClick={() => setWord(setting, taken)}>Use this one</button>)}
        </li>
      ))}
    </ul>
  </div>
));

const MOST_EDITED = 1 << 20; /* characters: a text field with more is slow */

/** @param {{file: import('../files.js').OpenFile}} props */
function Card({ file: { name, kind, text } }) {
  const card = report.value?.files?.find((one) => one.name === name);
  const matters = card ? card.unsupported.length + card.unknown.length : 0;
  const counts = card ? [card.used.length && `${card.used.length} used`, card.overruled.length && `${card.overruled.length} overruled`,
    matters && `${matters} not simulated`, card.ignored.length && `${card.ignored.length} without effect`].filter(Boolean) : [];
  return (
    <li class="file">
      <div class="file-head">
        <Icon name="file" /><span class="file-name">{name}</span>
        {text.length <= MOST_EDITED && <button type="button" class="icon-button" onClick={() => { editing.value = { name, text }; }} aria-label={`Edit ${name}`} data-tip="Edit"><Icon name="edit" /></button>}
        <button type="button" class="icon-button" onClick={() => closeFile(name)} aria-label={`Remove ${name}`}><Icon name="cross" /></button>
      </div>
      <p class="file-kind">{card?.title ?? KINDS[kind]}</p>
      {card && counts.length > 0 && (
        <details class="file-card">
          <summary>{matters > 0 && <Icon name="warn" />}{counts.join(' · ')}</summary>
          <Keys title="Another file holds" keys={card.overruled} kind="overruled" />
          <Keys title="Not simulated, and may matter" keys={card.unsupported} kind="unsupported" />
          <Keys title="Not known" keys={card.unknown} kind="unknown" />
          <Keys title="Used" keys={card.used} kind="used" />
          <Keys title="No effect on memory" keys={card.ignored} kind="ignored" />
        </details>
      )}
    </li>
  );
}

export function Files() {
  if (files.value.length === 0) return null;
  const fresh = justOpened.value.length;
  return (
    <>
      <ul class="files">{files.value.map((file) => <Card key={file.name} file={file} />)}</ul>
      {fresh > 0 && (
        <p class="files-undo" role="status">{fresh === 1 ? 'Opened' : `${fresh} files opened`}. <button type="button" class="button small" onClick={undo}><Icon name="undo" />Undo</button></p>
      )}
    </>
  );
}
