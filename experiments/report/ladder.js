// Shows the parts of the page that belong to the chosen deployment, phase of serving and ρ.
(() => {
  const controls = ["model", "phase", "rho"].map(byId);
  const show = () => {
    const chosen = controls.map((control) => control.value).join("|");
    for (const cell of document.querySelectorAll("[data-cell]")) cell.hidden = cell.dataset.cell !== chosen;
  };
  for (const control of controls) control.addEventListener("input", show);
  show();
})();
