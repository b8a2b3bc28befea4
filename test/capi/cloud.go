// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/test/stand"
)

// Cloud is a simulated cloud in a folder, with machines that boot when they
// exist: each becomes a Node of the Kubernetes cluster that its user-data names.
// It outlives managers and management clusters.
type Cloud struct {
	// Cloud is the view of who pays for it: ledger, faults of machines.
	*fake.Cloud
	// Dir is its folder.
	Dir string
	// Log is what the machines say.
	Log string
	// Machines is the process that the machines are in.
	Machines *os.Process

	plugin string
}

// StartCloud returns a cloud without a machine.
func StartCloud(t testing.TB) *Cloud {
	t.Helper()
	dir := t.TempDir()
	c := &Cloud{Dir: filepath.Join(dir, "cloud"), Log: filepath.Join(dir, "machines.log"), plugin: stand.As(t, stand.Build(t, "./test/capi/fakecloud"), "fake")}
	var err error
	c.Cloud, err = fake.New(fake.Options{Dir: c.Dir})
	must(t, err, "make the cloud")
	log, err := os.Create(c.Log)
	must(t, err, "make the log of the machines")
	defer log.Close()
	stand.ShowOnFailure(t, c.Log)
	machines := exec.Command(filepath.Join(Programs(t), "workload"), "-dir", c.Dir)
	machines.Stdout, machines.Stderr = log, log
	// It ends with its standard input, and so with this process.
	life, err := machines.StdinPipe()
	must(t, err, "start the machines")
	must(t, machines.Start(), "start the machines")
	c.Machines = machines.Process
	t.Cleanup(func() { end(machines, life) })
	return c
}

func end(cmd *exec.Cmd, life io.Closer) {
	life.Close()
	cmd.Wait()
}

// Env are the variables by which a manager finds the cloud as provider fake, a
// process plugin.
func (c *Cloud) Env(t testing.TB) []string {
	t.Helper()
	data, err := os.ReadFile(c.plugin)
	must(t, err, "read the plugin")
	sum := sha256.Sum256(data)
	return []string{
		"ENABLE_CLOUD_PROVIDER_EXTERNAL_PLUGIN=true",
		"CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH=" + c.plugin,
		"CLOUD_PROVIDER_EXTERNAL_PLUGIN_HASH=" + hex.EncodeToString(sum[:]),
		"FAKE_DIR=" + c.Dir,
	}
}
