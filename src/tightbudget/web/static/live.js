// Keeps an open page current. The page itself is the only rendering: when the ledger's head has
// moved, the page is fetched again, and what differs in its live parts is put in place, so that
// focus, open details and half-typed words stay where they are.
"use strict";

(() => {
  const EVERY = 2500; // milliseconds between looks
  const controls = document.querySelector(".live");
  const says = document.getElementById("live-state");
  const pause = document.getElementById("live-pause");
  let head = controls.dataset.head;
  let paused = false;
  let timer = null;

  async function look() {
    clearTimeout(timer);
    if (paused || document.hidden) return;
    try {
      const now = await headNow();
      if (now !== head || document.querySelector("[data-live] progress")) await refresh();
      head = now;
      tell("Live");
    } catch {
      tell("No connection, trying again");
    }
    timer = setTimeout(look, EVERY);
  }

  async function headNow() {
    const answer = await fetch("/api/v1/head", { headers: { accept: "application/json" } });
    if (!answer.ok) throw new Error(String(answer.status));
    return String((await answer.json()).sequence);
  }

  async function refresh() {
    const answer = await fetch(location.href);
    if (!answer.ok) throw new Error(String(answer.status));
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const its = fresh.getElementById(part.id);
      if (its) become(part, its);
    }
    say_ago();
    document.dispatchEvent(new Event("refreshed"));
  }

  function tell(words) {
    controls.classList.toggle("live-off", words !== "Live");
    if (says.textContent !== words) says.textContent = words;
  }

  // ---------------------------------------------------------------- one tree becomes another

  function become(old, fresh) {
    if (old.isEqualNode(fresh)) return;
    if (old.nodeType !== Node.ELEMENT_NODE || old.nodeName !== fresh.nodeName) {
      if (old.nodeType === Node.TEXT_NODE && fresh.nodeType === Node.TEXT_NODE) old.data = fresh.data;
      else old.replaceWith(document.importNode(fresh, true));
      return;
    }
    for (const { name } of [...old.attributes]) {
      if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    if (old.classList.contains("ago")) return; // its words are ours
    becomeList(old, [...fresh.childNodes]);
  }

  function becomeList(parent, fresh) {
    const named = new Map([...parent.children].filter((c) => c.id).map((c) => [c.id, c]));
    let place = parent.firstChild;
    for (const child of fresh) {
      const same = child.id ? named.get(child.id) : alike(place, child);
      if (same) {
        if (same === place) place = place.nextSibling;
        else parent.insertBefore(same, place);
        become(same, child);
      } else {
        const added = document.importNode(child, true);
        if (child.id) added.classList.add("is-new");
        parent.insertBefore(added, place);
      }
    }
    while (place) {
      const gone = place;
      place = place.nextSibling;
      gone.remove();
    }
  }

  function alike(old, fresh) {
    return old && !old.id && old.nodeName === fresh.nodeName ? old : null;
  }

  // ---------------------------------------------------------------------------- how long ago

  const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60]];
  const ago = new Intl.RelativeTimeFormat("en", { numeric: "always" });

  function say_ago() {
    for (const place of document.querySelectorAll(".ago")) {
      const seconds = (Date.parse(place.dataset.since) - Date.now()) / 1000;
      const [unit, size] = UNITS.find(([, s]) => -seconds >= s) ?? ["second", 1];
      const words = Number.isNaN(seconds) ? "" : ago.format(Math.round(seconds / size), unit);
      if (place.textContent !== words) place.textContent = words;
    }
  }

  // ----------------------------------------------------------------------------------- begin

  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    tell(paused ? "Paused" : "Live");
    look();
  });
  document.addEventListener("visibilitychange", look);
  document.getElementById("problem")?.focus();
  controls.hidden = false;
  say_ago();
  setInterval(say_ago, 30000);
  look();
})();
