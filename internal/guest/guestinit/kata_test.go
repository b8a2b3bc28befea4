// SPDX-License-Identifier: Apache-2.0

package guestinit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/internal/guest/kataguest"
)

// TestServicesWaitForEachOther: a program starts when the socket of the one before is there, with its own environment, and again
// when it has ended.
func TestServicesWaitForEachOther(t *testing.T) {
	con, out := testConsole()
	g := &guest{con: con, reaper: startReaper()}
	socket := filepath.Join(t.TempDir(), "socket")
	go g.superviseAfter(kataguest.Service{Argv: []string{"/bin/sh", "-c", "echo after $0 $WORD", "it"}, Env: []string{"WORD=now"}, After: []string{socket}})
	go g.superviseAfter(kataguest.Service{Argv: []string{"/bin/sh", "-c", "echo before; echo > $0", socket}, Socket: filepath.Join(t.TempDir(), "other")})
	out.await(t, "sh: after it now\n", 2)
	text, _ := out.read()
	if strings.Index(text, "before") > strings.Index(text, "after") {
		t.Errorf("wrong order:\n%s", text)
	}
	if _, err := os.Stat(socket); err != nil {
		t.Error(err)
	}
}
