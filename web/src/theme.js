/* Before the first paint: the theme kept in this browser. */
try {
  const kept = localStorage.getItem('tidemark.theme');
  if (kept === 'light' || kept === 'dark') document.documentElement.dataset.theme = kept;
} catch { /* storage is off: the system's theme */ }
