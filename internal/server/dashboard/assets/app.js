// What needs a script and nothing more: copying, times in the reader's own
// zone, and reading a page again while somebody looks at it.

function localTimes(root) {
  for (const t of root.querySelectorAll("time[datetime]")) {
    const at = new Date(t.dateTime);
    if (!Number.isNaN(at.valueOf())) t.title = `${at.toLocaleString()} (your time) · ${t.title}`;
  }
}

function copyButtons(root) {
  if (!navigator.clipboard) return;
  for (const button of root.querySelectorAll("button[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent);
        button.textContent = "Copied";
        document.getElementById("said").textContent = "Copied.";
      } catch {
        const text = document.createElement("p");
        text.textContent = "The browser did not let the page copy. Select the text and copy it.";
        document.getElementById("status").replaceChildren(text);
        return;
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }
}

// refresh puts what the server says now in place of every part that is marked,
// except where somebody is at work.
async function refresh() {
  if (document.hidden) return;
  const response = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin", redirect: "error" });
  if (!response.ok) return;
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
  for (const part of document.querySelectorAll("[data-live][id]")) {
    const next = fresh.getElementById(part.id);
    if (!next || part.contains(document.activeElement) || part.querySelector("details[open]")) continue;
    if (next.innerHTML === part.dataset.was) continue;
    part.dataset.was = next.innerHTML;
    part.replaceChildren(...next.childNodes);
    localTimes(part);
    copyButtons(part);
  }
}

localTimes(document);
copyButtons(document);
const main = document.querySelector("main[data-refresh]");
if (main) setInterval(() => { refresh().catch(() => {}); }, Number(main.dataset.refresh) * 1000);
