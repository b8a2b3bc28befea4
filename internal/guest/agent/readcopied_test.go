// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/internal/protocol/guest"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestReadCopied(t *testing.T) {
	a, dir := copying(t)
	if err := os.MkdirAll(filepath.Join(dir, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 5000) + "the end"
	for name, text := range map[string]string{"message": "the butler", "empty": "", "long": long, "folder/file": "secret"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("folder/file", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	read := func(path string) (string, codes.Code) {
		resp, err := a.ReadCopied(t.Context(), &guest.ReadCopiedRequest{Path: path})
		return string(resp.GetData()), status.Code(err)
	}
	for name, want := range map[string]string{"message": "the butler", "empty": "", "long": long[len(long)-maxTerminationMessage:]} {
		if got, code := read(sharedFolder + "/" + name); got != want || code != codes.OK {
			t.Errorf("%s: %d bytes, %v", name, len(got), code)
		}
	}
	for path, want := range map[string]codes.Code{
		sharedFolder + "/gone": codes.NotFound, sharedFolder + "/folder/file": codes.InvalidArgument, sharedFolder + "/..": codes.InvalidArgument,
		sharedFolder + "/folder": codes.InvalidArgument, sharedFolder + "/pipe": codes.InvalidArgument, sharedFolder + "/link": codes.Internal,
		"/etc/passwd": codes.InvalidArgument, sharedFolder + "/": codes.InvalidArgument, "": codes.InvalidArgument,
	} {
		if got, code := read(path); got != "" || code != want {
			t.Errorf("%s: %q, %v, want %v", path, got, code, want)
		}
	}
}
