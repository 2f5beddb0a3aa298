document.getElementById("app").textContent = "Tideline: see /docs for the API.";
