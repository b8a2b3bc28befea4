// SPDX-License-Identifier: Apache-2.0

package dockerd

import (
	"io"
	"os"
	"testing"

	"github.com/outrigger/outrigger/test/stand"
)

// Guest is the image of the pod VM as a container.
const Guest = "outrigger/podvm:latest"

// LoadGuest brings that image in, as `docker load` does.
func (e *Engine) LoadGuest(t testing.TB) {
	t.Helper()
	e.Load(t, stand.Binary(t, "podvm/podvm.tar"))
}

// Load brings the images of a file in, as `docker load` does.
func (e *Engine) Load(t testing.TB, name string) {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	answer, err := e.Client.ImageLoad(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Close()
	if _, err := io.Copy(io.Discard, answer); err != nil {
		t.Fatal(err)
	}
}
