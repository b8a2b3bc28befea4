// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/accounts"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// TestUsersThatAnImageHides: a user who is not found has group 0, so nothing in
// front of an entry may hide it.
func TestUsersThatAnImageHides(t *testing.T) {
	for what, odd := range map[string]string{
		"nothing": "", "a long line": strings.Repeat("x", 70_000) + "\n", "a line without end": strings.Repeat("a:", 100_000) + "\n",
		"zeroes": "\x00\x00:\x00\n", "empty lines": "\n\n:\n::::\n",
	} {
		var got oci.User
		err := lookUp(&got, odd+"app:x:7:8::/:/bin/sh\n", odd+"eight:x:8:\nmore:x:9:root,app\n", &agent.StringUser{Uid: "7"})
		if err != nil || got.UID != 7 || got.GID != 8 || !slices.Equal(got.AdditionalGids, []uint32{9}) {
			t.Errorf("behind %s: %+v, %v", what, got, err)
		}
	}
	// Who starts a container by a number has been asked for that user, whatever an image calls it.
	var numbered oci.User
	if err := lookUp(&numbered, "1000:x:0:0:::\napp:x:1000:8:::\n", "1000:x:0:\n", &agent.StringUser{Uid: "1000", Gid: "1000"}); err != nil || numbered.UID != 1000 || numbered.GID != 1000 {
		t.Errorf("1000 is %+v, %v", numbered, err)
	}
	if err := lookUp(&oci.User{}, "app:x:7:8:::", strings.Repeat("g:x:1:app\n", maxGroups+1), &agent.StringUser{Uid: "app"}); err == nil {
		t.Error("a user is in more groups than Linux has room for")
	}
}

// TestUserFilesThatAreNone: a pipe has nobody who writes, and a large file fills
// the memory.
func TestUserFilesThatAreNone(t *testing.T) {
	for what, make := range map[string]func(path string) error{
		"a pipe":       func(path string) error { return unix.Mkfifo(path, 0o644) },
		"a folder":     func(path string) error { return os.Mkdir(path, 0o755) },
		"a large file": func(path string) error { return os.WriteFile(path, nil, 0o644) },
		"a loop":       func(path string) error { return os.Symlink("passwd", path) },
	} {
		root := t.TempDir()
		path := filepath.Join(root, "etc/passwd")
		if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		if what == "a large file" {
			if err := os.Truncate(path, 1<<40); err != nil {
				t.Fatal(err)
			}
		}
		if err := applyUser(&oci.User{}, root, &agent.StringUser{Uid: "7"}); err == nil {
			t.Errorf("%s is taken for a file without the user", what)
		}
	}
	var got oci.User
	if err := applyUser(&got, t.TempDir(), &agent.StringUser{Uid: "7"}); err != nil || got.UID != 7 || got.GID != 0 {
		t.Errorf("without a file: %+v, %v", got, err)
	}
}

// FuzzUser: whatever an image has in front of an entry, the entry is found.
func FuzzUser(f *testing.F) {
	f.Add("root:x:0:0:::\n", "root:x:0:root\n", "app")
	f.Add(strings.Repeat("x", 70_000), "a:x:1:app,app,", "0")
	f.Add("app:x:-1:99999999999:::", "::::", "app")
	f.Add(":::\napp:x:5\r\n", "g:x:12:a:b:c", "")
	f.Fuzz(func(t *testing.T, passwd, groups, user string) {
		var any oci.User
		if err := lookUp(&any, passwd, groups, &agent.StringUser{Uid: user, Gid: user}); err == nil && len(any.AdditionalGids) > maxGroups {
			t.Errorf("%d groups", len(any.AdditionalGids))
		}
		if strings.Contains(passwd, "hidden7") || strings.Contains(groups, "hidden7") {
			return
		}
		var got oci.User
		err := lookUp(&got, passwd+"\nhidden7:x:7:8:::\n", groups+"\nhidden7:x:9:hidden7\n", &agent.StringUser{Uid: "hidden7"})
		if err != nil || got.UID != 7 || got.GID != 8 || !slices.Equal(got.AdditionalGids, []uint32{9}) {
			t.Errorf("%+v, %v", got, err)
		}
		if gid, err := accounts.FindGroup(groups+"\nhidden7:x:9:", "hidden7"); gid != 9 || err != nil {
			t.Errorf("group %d, %v", gid, err)
		}
	})
}
