// SPDX-License-Identifier: Apache-2.0

//go:build integration

package carriers

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/internal/cli/providercheck/record"
	"github.com/outrigger/outrigger/test/cloudsim"
	powervs "github.com/outrigger/outrigger/test/cloudsim/ibmcloudpowervs"
	"github.com/outrigger/outrigger/test/cloudsim/openstack"
	"github.com/outrigger/outrigger/test/stand"
)

// TestReplay plays a user with an account and the keeper of a simulator, each of
// whom has a simulator of ours for a cloud: what one recorded, the other's
// answers are compared with. The record has more checks, so that it has seen what
// an instance that is gone gets, whenever the other asks.
func TestReplay(t *testing.T) {
	for name, start := range map[string]func(*testing.T) replayed{
		"openstack": func(t *testing.T) replayed {
			c := openstack.Start(t)
			return replayed{c.CAFile, []string{
				"OS_AUTH_URL=" + named(c.Server.URL) + "/identity/v3", "OS_REGION_NAME=" + openstack.Region, "OS_APPLICATION_CREDENTIAL_ID=" + openstack.AppCredID,
				"OS_APPLICATION_CREDENTIAL_SECRET=" + openstack.AppCredSecret, "OPENSTACK_IMAGE_ID=" + openstack.Image, "OPENSTACK_FLAVOR=m1.small", "OPENSTACK_NETWORK_ID=" + openstack.Network,
			}, openstack.AppCredSecret}
		},
		"ibmcloud-powervs": func(t *testing.T) replayed {
			s := powervs.New(t, cloudsim.NewWorld())
			url := named(s.Server.URL)
			return replayed{s.Server.CAFile, []string{
				"IBMCLOUD_API_KEY=" + powervs.APIKey, "POWERVS_ZONE=" + powervs.Zone, "POWERVS_SERVICE_INSTANCE_ID=" + powervs.Instance,
				"POWERVS_NETWORK_ID=" + powervs.PublicNetwork, "POWERVS_IMAGE_ID=" + powervs.Image, "POWERVS_SSH_KEY_NAME=" + powervs.SSHKey,
				"POWERVS_ENDPOINT=" + url, "IBMCLOUD_IAM_ENDPOINT=" + url + "/identity/token",
			}, powervs.APIKey}
		},
	} {
		t.Run(name, func(t *testing.T) {
			program, dir := stand.BinaryAs(t, "provider-"+name, name), filepath.Join(t.TempDir(), "record")
			first := start(t)
			if out, err := first.check(t, program, "^(create|list-owner|verify|get-deleted|delete-repeated)$", "--record", dir); err != nil {
				t.Fatalf("--record: %v\n%s", err, out)
			}
			file := filepath.Join(dir, record.File)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), `"method":"DELETE"`) || strings.Contains(string(text), first.secret) {
				t.Errorf("the record lacks calls, or has the credential:\n%.2000s", text)
			}
			if out, err := start(t).check(t, program, "^(create|list-owner|verify)$", "--replay", dir); err != nil || strings.Contains(out, "differs") {
				t.Errorf("--replay of what the same simulator answered: %v\n%s", err, out)
			}
			if out, err := start(t).check(t, program, "^(create|list-owner|verify)$", "--replay", otherwise(t, dir)); err == nil || !strings.Contains(out, "differs  DELETE /") || !strings.Contains(out, "the cloud [299]") {
				t.Errorf("--replay of what a cloud answered otherwise: %v\n%s", err, out)
			}
		})
	}
}

// replayed is a cloud: the authority of its certificate, the variables of its
// provider, and the secret among them.
type replayed struct {
	ca     string
	env    []string
	secret string
}

// otherwise returns the record of a cloud that answers deletions with a status
// of its own.
func otherwise(t *testing.T, dir string) string {
	all, err := record.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	var lines []byte
	for _, e := range all {
		if e.Method == "DELETE" {
			e.Status = 299
		}
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(append(lines, line...), '\n')
	}
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, record.File), lines, 0o600); err != nil {
		t.Fatal(err)
	}
	return other
}

// named gives an address of this machine a name: proxies are not asked for
// addresses.
func named(url string) string { return strings.Replace(url, "127.0.0.1", "cloud.localhost", 1) }

func (r replayed) check(t *testing.T, program, checks string, args ...string) (string, error) {
	cmd := exec.CommandContext(t.Context(), stand.Binary(t, "provider-check"), append(args, "--plugin", program, "--run", checks, "--parallel", "2")...)
	cmd.Env = append(append(os.Environ(), "SSL_CERT_FILE="+r.ca), r.env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
