// Shows, in the form that opens a budget, only the numbers that the chosen kind has.
"use strict";

(() => {
  const kind = document.querySelector("#open-form select[name=kind]");
  if (!kind) return;
  const show = () => {
    for (const field of document.querySelectorAll("#open-form [data-of]")) {
      field.hidden = !field.dataset.of.split(" ").includes(kind.value);
      const hint = field.querySelector(".hint"); // it names the kinds, and the kind is chosen here
      if (hint) hint.hidden = true;
      for (const input of field.querySelectorAll("input, textarea")) input.disabled = field.hidden;
    }
  };
  kind.addEventListener("change", show);
  show();
})();
