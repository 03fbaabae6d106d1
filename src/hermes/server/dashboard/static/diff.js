/** Differences of files, line by line. */
import { html, revealed } from "./ui.js";
import { T } from "./text.js";

/** The lines of a unified difference with their numbers before and after; no hunk: no numbers. */
function numberLines(lines) {
  let before = 0;
  let after = 0;
  return lines.map(line => {
    const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)/.exec(line);
    if (hunk) { [before, after] = [Number(hunk[1]), Number(hunk[2])]; return { line, kind: "hunk" }; }
    if (/^(\+\+\+|---) /.test(line) && !before && !after) return { line, kind: "file" };
    const numbered = before || after;
    if (line.startsWith("+")) return { line, kind: "add", after: numbered ? after++ : "" };
    if (line.startsWith("-")) return { line, kind: "del", before: numbered ? before++ : "" };
    return { line, kind: "", before: numbered ? before++ : "", after: numbered ? after++ : "" };
  });
}

export function Diff({ lines, label = T.changesOf }) {
  const rows = numberLines(lines.slice(0, 2000));
  const numbered = rows.some(row => row.kind === "hunk");
  return html`<div class=${`diff ${numbered ? "numbered" : ""}`} tabindex="0" role="region" aria-label=${label}>${rows.map(row =>
    html`<div class=${row.kind}>${numbered && html`<i>${row.before}</i><i>${row.after}</i>`}<span>${revealed(row.line) || " "}</span></div>`)}
    ${lines.length > 2000 && html`<div class="hunk">${T.moreLines(lines.length - 2000)}</div>`}</div>`;
}
