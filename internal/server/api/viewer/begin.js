'use strict';

// Shows the contract with RapiDoc in place of the list that the page has without a script.
const list = document.querySelector('main');
const dark = matchMedia('(prefers-color-scheme: dark)');
const viewer = document.createElement('rapi-doc');
const set = (attributes) => Object.entries(attributes).forEach(([name, value]) => viewer.setAttribute(name, value));

// Each pair of colours has the contrast that WCAG asks for.
const colours = {
  light: {
    'theme': 'light', 'bg-color': '#ffffff', 'text-color': '#1a1a1f', 'primary-color': '#3730a3', 'nav-bg-color': '#f4f4f7', 'nav-text-color': '#1a1a1f',
    'nav-hover-bg-color': '#e4e4ec', 'nav-hover-text-color': '#1a1a1f', 'nav-accent-color': '#3730a3',
  },
  dark: {
    'theme': 'dark', 'bg-color': '#16161a', 'text-color': '#ececf1', 'primary-color': '#b4b8ff', 'nav-bg-color': '#1e1e24', 'nav-text-color': '#ececf1',
    'nav-hover-bg-color': '#33333d', 'nav-hover-text-color': '#ffffff', 'nav-accent-color': '#b4b8ff',
  },
};
const paint = () => set(colours[dark.matches ? 'dark' : 'light']);

set({
  'render-style': 'focused', 'show-header': 'false', 'load-fonts': 'false', 'regular-font': 'system-ui, sans-serif',
  'mono-font': 'ui-monospace, monospace', 'allow-server-selection': 'false', 'allow-advanced-search': 'false',
  'show-method-in-nav-bar': 'as-plain-text', 'schema-style': 'table',
});
paint();
dark.addEventListener('change', paint);

// RapiDoc leaves fields and landmarks without names. It draws anew with each click, in shadow
// trees within shadow trees.
const watched = new WeakSet();
function nameFields(root) {
  for (const field of root.querySelectorAll('input:not([aria-label]), textarea:not([aria-label]), select:not([aria-label])')) {
    field.setAttribute('aria-label', field.dataset.pname || field.placeholder || 'Choice');
  }
  root.querySelectorAll('nav:not([aria-label])').forEach((nav, i) => nav.setAttribute('aria-label', i ? 'Sections' : 'Operations'));
  for (const element of root.querySelectorAll('*')) {
    if (element.shadowRoot) watch(element.shadowRoot);
  }
}
function watch(root) {
  if (!watched.has(root)) {
    watched.add(root);
    new MutationObserver(() => nameFields(root)).observe(root, {childList: true, subtree: true});
  }
  nameFields(root);
}

// RapiDoc makes an example up where a body has one alone, and shows those in a list.
function listExamples(node) {
  for (const value of Object.values(node || {})) {
    if (typeof value !== 'object') continue;
    if (value && value.schema && value.example !== undefined && !value.in) {
      value.examples = {example: {value: value.example}};
      delete value.example;
    }
    listExamples(value);
  }
}

// An operation is shown and found by its name beside its summary.
async function begin() {
  const contract = await (await fetch(list.dataset.contract)).json();
  for (const path of Object.values(contract.paths)) {
    for (const operation of Object.values(path)) {
      if (operation.operationId) operation.summary = operation.operationId + ': ' + operation.summary;
    }
  }
  listExamples(contract);
  await customElements.whenDefined('rapi-doc');
  list.replaceWith(viewer);
  viewer.loadSpec(contract);
  watch(viewer.shadowRoot);
}
begin();
