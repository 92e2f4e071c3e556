// Applies the chosen theme before anything is drawn.
"use strict";
try {
  const theme = localStorage.getItem("ringfence-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Without storage the system's theme applies.
}
