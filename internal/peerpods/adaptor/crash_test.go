// SPDX-License-Identifier: Apache-2.0

package adaptor_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/outrigger/outrigger/test/crashtest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashtest.FolderEnv); dir != "" {
		if err := crashtest.Serve(dir, joinPool(dir)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// shortDir is a new folder whose path leaves room for a unix socket in it.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "oa")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestKilledBetweenAnyTwoSteps(t *testing.T) {
	crashtest.Run(t, func(t *testing.T) crashtest.World { return crashtest.NewFolder(t) }, crashtest.Every)
}
