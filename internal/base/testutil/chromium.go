package testutil

import (
	"errors"
	"os"
	"os/exec"
)

// Chromium returns the path of the browser: the one that GUILDHALL_TEST_CHROMIUM names, or else an
// installed one.
func Chromium() (string, error) {
	program := os.Getenv("GUILDHALL_TEST_CHROMIUM")
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); program == "" && err == nil {
			program = path
		}
	}
	if program == "" {
		return "", errors.New("needs Chromium: `make chromium` installs it where it may, or says how")
	}
	return program, nil
}
