/* Where the browser refuses the clipboard: the text, selected. */
import { signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';

const shown = signal(/** @type {{label: string, text: string} | null} */ (null));

/** @param {string} label @param {string} text */
export function showCopy(label, text) {
  shown.value = { label, text };
}

export function CopyDialog() {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const area = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const content = shown.value;
  useEffect(() => {
    if (!content) return;
    dialog.current?.showModal();
    area.current?.select();
  }, [content]);
  return (
    <dialog ref={dialog} class="dialog" aria-labelledby="copy-title" onClose={() => { shown.value = null; }}>
      {content && (
        <form method="dialog">
          <h2 id="copy-title">{content.label}</h2>
          <textarea ref={area} readOnly rows={4} aria-label={content.label} value={content.text} />
          <div class="dialog-actions"><button class="button primary" type="submit">Close</button></div>
        </form>
      )}
    </dialog>
  );
}
