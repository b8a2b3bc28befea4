// SPDX-License-Identifier: Apache-2.0

package cloudsim

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
)

// disabled are variables that keep the clouds' SDKs from looking for
// credentials at the metadata services of a cloud, which are at link-local
// addresses (169.254.169.254, 100.100.100.200).
var disabled = map[string]string{
	"AWS_EC2_METADATA_DISABLED":           "true",
	"ALIBABA_CLOUD_ECS_METADATA_DISABLED": "true",
	"GCE_METADATA_HOST":                   "127.0.0.1:1",
	"NO_PROXY":                            "*",
}

// cloudPrefixes begin the variables that hold somebody's own credentials and
// settings, which tests must not see.
var cloudPrefixes = []string{"AWS_", "ALIBABA", "AZURE_", "GCP_", "GOOGLE_", "CLOUDSDK_", "IBMCLOUD_", "POWERVS_", "OS_", "GOVC_", "DOCKER_"}

// Main runs the tests of a package with no one's credentials in the
// environment, an empty home folder, and net/http's standard transport kept to
// loopback. Call it from TestMain.
func Main(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	home, err := os.MkdirTemp("", "cloudsim-home")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(home)
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		for _, prefix := range cloudPrefixes {
			if strings.HasPrefix(name, prefix) || strings.HasSuffix(strings.ToLower(name), "_proxy") {
				os.Unsetenv(name)
			}
		}
	}
	// The Go tool still needs its folders when a test calls it.
	for _, folder := range []string{"GOCACHE", "GOENV", "GOMODCACHE", "GOPATH"} {
		keepGoFolder(folder)
	}
	for name, value := range disabled {
		os.Setenv(name, value)
	}
	os.Setenv("HOME", home)
	if standard, ok := http.DefaultTransport.(*http.Transport); ok {
		standard.DialContext = DialLoopback
		standard.Proxy = nil
	}
	return m.Run()
}

// DialLoopback dials loopback addresses only.
func DialLoopback(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("tests stay on loopback: %s was dialled", address)
	}
	var d net.Dialer
	return d.DialContext(ctx, network, address)
}
