/** The palette, Ctrl+K: pages, actions, conversations, messages and settings by their names. */
import { useEffect, useRef, useState } from "./vendor-preact-hooks.js";
import { get, may, state } from "./data.js";
import { listActions, runAction } from "./actions.js";
import { Dialog, html } from "./ui.js";
import { T } from "./text.js";

const MOST = 40;

/** @typedef {{key: string, kind: string, label: string, hint: string, run: () => void}} Entry */

/** @returns {Entry[]} what is known without asking the server */
function listKnown(pages, conv, settings) {
  const open = hash => () => { location.hash = hash; };
  return [
    ...pages.map(name => ({ key: `page ${name}`, kind: T.kinds.page, label: T.pages[name], hint: "", run: open(`#/${name}`) })),
    ...listActions(conv).filter(action => !action.argument && !action.choices).map(action => ({ key: `action ${action.name}`, kind: T.kinds.action,
      label: action.label, hint: action.hint, run: () => runAction(action, conv) })),
    ...(conv ? listActions(conv).filter(action => action.choices).flatMap(action => action.choices.map(choice => ({ key: `action ${action.name} ${choice}`,
      kind: T.kinds.action, label: `${action.label}: ${choice}`, hint: "", run: () => runAction(action, conv, choice) }))) : []),
    ...[...state.sessions.values()].sort((a, b) => b.updated_at - a.updated_at).map(session => ({ key: `session ${session.id}`, kind: T.kinds.session,
      label: session.title || T.untitled, hint: session.source, run: open(`#/c/${session.id}`) })),
    ...settings.map(field => ({ key: `setting ${field.key}`, kind: T.kinds.setting, label: field.key, hint: field.help, run: open(`#/settings/${field.key}`) })),
  ];
}

function matches(entry, words) {
  const text = `${entry.label} ${entry.kind} ${entry.hint}`.toLowerCase();
  return words.every(word => text.includes(word));
}

function useHits(text) {
  const [hits, setHits] = useState([]);
  useEffect(() => {
    if (text.trim().length < 3) { setHits([]); return undefined; }
    let current = true;
    const timer = setTimeout(() => get(`api/sessions/search?limit=12&q=${encodeURIComponent(text)}`)
      .then(found => current && setHits(found.data), () => {}), 150);
    return () => { current = false; clearTimeout(timer); };
  }, [text]);
  return hits.map(hit => ({ key: `hit ${hit.session.id} ${hit.seq}`, kind: T.kinds.message, label: hit.snippet, hint: hit.session.title,
    run: () => { location.hash = `#/c/${hit.session.id}/${hit.seq}`; } }));
}

export function Palette({ pages, conv, onClose }) {
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const [settings, setSettings] = useState([]);
  const list = useRef(null);
  useEffect(() => { if (may("admin")) get("api/config").then(found => setSettings(found.schema), () => {}); }, []);
  const hits = useHits(text);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const known = listKnown(pages, conv, words.length ? settings : []).filter(entry => matches(entry, words));
  const rows = [...known.slice(0, MOST), ...hits];
  useEffect(() => { setChosen(0); }, [text]);
  useEffect(() => { const row = list.current && list.current.children[chosen]; if (row) row.scrollIntoView({ block: "nearest" }); }, [chosen]);
  const run = entry => { onClose(); entry.run(); };
  const onKey = event => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setChosen((chosen + (event.key === "ArrowDown" ? 1 : -1) + rows.length) % Math.max(1, rows.length));
    } else if (event.key === "Enter" && rows[chosen]) { event.preventDefault(); run(rows[chosen]); }
  };
  return html`<${Dialog} title=${T.palette} kind="palette" onClose=${onClose}>
    <input role="combobox" aria-label=${T.paletteHelp} aria-expanded="true" aria-controls="palette-rows" aria-activedescendant=${rows[chosen] ? `palette-${chosen}` : undefined}
      autocomplete="off" placeholder=${T.paletteHelp} value=${text} onInput=${event => setText(event.target.value)} onKeyDown=${onKey} autofocus />
    ${rows.length ? html`<ul id="palette-rows" ref=${list} role="listbox" aria-label=${T.palette} tabindex="-1">${rows.map((entry, n) => html`<li key=${entry.key} id=${`palette-${n}`} role="option"
      aria-selected=${n === chosen} onClick=${() => run(entry)}><span class="dim kind">${entry.kind}</span><span class="ellipsis">${entry.label}</span><span class="dim ellipsis hint">${entry.hint}</span></li>`)}</ul>`
      : html`<p class="dim" id="palette-rows" role="status">${T.foundNothing}</p>`}<//>`;
}
