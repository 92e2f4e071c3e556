// Before anything is drawn: the theme that was chosen, if one was.
"use strict";
try {
  const theme = localStorage.getItem("ringfence-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // A browser that keeps nothing shows what the system prefers.
}
