/** What completes in the composer: slash commands, their choices, and files of the workspace. */
import { get } from "./data.js";
import { listActions } from "./actions.js";
import { html } from "./ui.js";
import { T } from "./text.js";

const MOST = 8;

/** The files whose path contains the words, of the conversation's folder or of that where new ones begin. */
export async function listFiles(conv, words) {
  const found = await get(`api/files?q=${encodeURIComponent(words)}${conv ? `&session=${conv.id}` : ""}`);
  return found.data.map(file => file.path);
}

/**
 * What fits before the caret.
 * @returns {{start: number, rows: {text: string, hint: string}[]}} `start`: where the text to replace begins
 */
export function findCompletions(text, caret, conv, files) {
  const before = text.slice(0, caret);
  const command = /^\/([a-z-]*)$/.exec(before);
  if (command) {
    const rows = listActions(conv).filter(action => action.name.startsWith(command[1]))
      .map(action => ({ text: `/${action.name}${action.argument || action.choices ? " " : ""}`, label: `/${action.name} ${action.argument || ""}`, hint: action.hint }));
    return { start: 0, rows };
  }
  const choice = /^\/([a-z-]+) (\S*)$/.exec(before);
  const action = choice && listActions(conv).find(other => other.name === choice[1] && other.choices);
  if (action) return { start: before.length - choice[2].length,
    rows: action.choices.filter(name => name.startsWith(choice[2]) && name !== choice[2]).map(name => ({ text: name, label: name, hint: "" })) };
  const file = /(?:^|\s)@(\S*)$/.exec(before);
  if (file) {
    const words = file[1].toLowerCase();
    const rows = files.filter(path => path.toLowerCase().includes(words) && path.toLowerCase() !== words).slice(0, MOST)
      .map(path => ({ text: /\s/.test(path) ? `@"${path}" ` : `@${path} `, label: `@${path}`, hint: "" }));
    return { start: before.length - file[1].length - 1, rows };
  }
  return { start: caret, rows: [] };
}

export function Completions({ rows, chosen, onPick }) {
  return html`<ul class="completions" id="completions" role="listbox" aria-label=${T.completions}>${rows.map((row, n) =>
    html`<li key=${row.label} id=${`completion-${n}`} role="option" aria-selected=${n === chosen} onPointerDown=${event => { event.preventDefault(); onPick(row); }}>
      <b>${row.label}</b><span class="dim ellipsis">${row.hint}</span></li>`)}</ul>`;
}
