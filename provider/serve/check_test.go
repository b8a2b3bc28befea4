// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/provider/plugin/wire"
	"github.com/outrigger/outrigger/provider/serve"
)

// create makes an instance and returns its id.
func create(t *testing.T, conn *grpc.ClientConn, key string) string {
	t.Helper()
	capabilities, err := wire.Configure(t.Context(), conn, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	instance, err := wire.NewProvider(conn, "", capabilities).CreateInstance(t.Context(), "pod", key, cloudinit.Raw(""), provider.InstanceTypeSpec{})
	if err != nil {
		t.Fatal(err)
	}
	return instance.ID
}

func TestCheck(t *testing.T) {
	report := filepath.Join(t.TempDir(), "report.xml")
	code, stdout, stderr := run(modern(), "--check", "--run", "^(create|key|teardown|verify)$|^key-", "--junit", report, "--modern-dir", t.TempDir())
	if code != 0 || stderr != "" || !strings.Contains(stdout, "passed  create (") || !strings.Contains(stdout, " 0 failed") {
		t.Errorf("code %d, stderr %s:\n%s", code, stderr, stdout)
	}
	var suites struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
	}
	data, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal(data, &suites); err != nil || suites.Tests < 10 || suites.Tests >= len(conformance.Checks()) || suites.Failures != 0 {
		t.Errorf("%+v, %v", suites, err)
	}
}

func TestCheckOfAManagerWithoutPackageConfig(t *testing.T) {
	code, stdout, stderr := run(fake.NewManager(), "--check", "--run", "^key-reopened$", "--fake-dir", t.TempDir())
	if code != 0 || !strings.Contains(stdout, "1 checks: 1 passed") {
		t.Errorf("code %d, %s, %s", code, stdout, stderr)
	}
}

func TestCheckThatFails(t *testing.T) {
	code, stdout, stderr := run(fake.NewManager(), "--check", "--run", "^create$", "--fake-dir", t.TempDir(), "--fake-faults", "create:quota:times=-1")
	if code != 1 || stderr != "" || !strings.Contains(stdout, "failed  create (") || !strings.Contains(stdout, "quota exceeded") {
		t.Errorf("code %d, %s, %s", code, stdout, stderr)
	}
}

func TestCheckThatCannotBegin(t *testing.T) {
	code, stdout, stderr := run(fake.NewManager(), "--check", "--fake-faults", "verify:unauthenticated")
	if code != 2 || stdout != "" || !strings.Contains(stderr, "the provider cannot be checked: fake: verify: unauthenticated") {
		t.Errorf("code %d, %s, %s", code, stdout, stderr)
	}
}

func TestSubjectIsCompleted(t *testing.T) {
	called := false
	code := serve.Run(serve.Options{
		Name: "modern", Cloud: modern(), Args: []string{"--check", "--run", "^create$", "--modern-dir", t.TempDir()},
		Stdout: &buffer{}, Stderr: &buffer{},
		Subject: func(s *conformance.Subject) { called = s.Provider != nil && s.Reopen != nil },
	})
	if code != 0 || !called {
		t.Errorf("code %d, called %v", code, called)
	}
}
