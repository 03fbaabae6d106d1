/** Finding words in one conversation: in what is loaded here, and in the rest by the server's index. */
import { useEffect, useRef, useState } from "./vendor-preact-hooks.js";
import { get } from "./data.js";
import { html } from "./ui.js";
import { showMessage } from "./log.js";
import { T } from "./text.js";

const SHORTEST = 2;

function readText(message) {
  if (message.role === "tool") return "";
  return message.content.map(part => part.type === "text" ? part.text : "").join("\n");
}

/** The numbers of the messages that contain the words, in order. */
async function findPlaces(conv, words) {
  const lower = words.toLowerCase();
  const found = new Set();
  for (const [seq, message] of conv.messages) if (readText(message).toLowerCase().includes(lower)) found.add(seq);
  const hits = await get(`api/sessions/search?limit=200&q=${encodeURIComponent(words)}`).catch(() => ({ data: [] }));
  for (const hit of hits.data) if (hit.session.id === conv.id && hit.role !== "tool") found.add(hit.seq);
  return [...found].sort((a, b) => a - b);
}

/** Marks the words in an element without changing it. */
function markWords(element, words) {
  if (!("highlights" in CSS)) return;
  const ranges = [];
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const text = node.data.toLowerCase();
    for (let at = text.indexOf(words); at >= 0; at = text.indexOf(words, at + words.length)) {
      const range = new Range();
      range.setStart(node, at);
      range.setEnd(node, at + words.length);
      ranges.push(range);
    }
  }
  CSS.highlights.set("find", new Highlight(...ranges));
}

const clearMarks = () => "highlights" in CSS && CSS.highlights.delete("find");

export function FindBar({ conv, words: given, onClose }) {
  const [words, setWords] = useState(given);
  const [places, setPlaces] = useState(null);
  const [at, setAt] = useState(0);
  const field = useRef(null);
  useEffect(() => { const before = document.activeElement; field.current.focus(); return () => { clearMarks(); if (before && before.focus) before.focus(); }; }, []);
  useEffect(() => {
    const wanted = words.trim();
    clearMarks();
    if (wanted.length < SHORTEST) { setPlaces(null); return undefined; }
    let current = true;
    const timer = setTimeout(() => findPlaces(conv, wanted).then(found => { if (current) { setPlaces(found); setAt(found.length - 1); } }), 120);
    return () => { current = false; clearTimeout(timer); };
  }, [words]);
  useEffect(() => {
    if (!places || !places.length) return undefined;
    let current = true;
    showMessage(conv, places[at]).then(element => element && current && markWords(element, words.trim().toLowerCase()), () => {});
    return () => { current = false; };
  }, [places, at]);
  const go = step => places && places.length && setAt((at + step + places.length) % places.length);
  const onKey = event => {
    if (event.key === "Escape") { event.preventDefault(); onClose(); }
    if (event.key === "Enter" && event.target === field.current) { event.preventDefault(); go(event.shiftKey ? 1 : -1); }
  };
  const status = !places ? "" : places.length ? T.foundAt(at + 1, places.length) : T.foundNothing;
  return html`<div class="find" role="search" aria-label=${T.find} onKeyDown=${onKey}>
    <input ref=${field} type="search" aria-label=${T.find} placeholder=${T.find} value=${words} onInput=${event => setWords(event.target.value)} />
    <span class="dim" role="status">${status}</span>
    <button class="quiet" onClick=${() => go(-1)} aria-label=${T.findEarlier}>↑</button><button class="quiet" onClick=${() => go(1)} aria-label=${T.findLater}>↓</button>
    <button class="quiet" onClick=${onClose} aria-label=${T.close}>×</button></div>`;
}
