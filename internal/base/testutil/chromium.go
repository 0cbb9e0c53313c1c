package testutil

import (
	"errors"
	"os"
	"os/exec"
)

// Chromium is the path of the browser that GUILDHALL_TEST_CHROMIUM names, or of one that is
// installed.
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
