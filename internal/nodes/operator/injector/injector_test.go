// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// run writes the files and runs the command; it returns what was written, what
// was said, and the error.
func run(t *testing.T, config string, secret map[string]string, flags ...string) (string, string, error) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if config != "" {
		write("in", config)
	}
	for name, text := range secret {
		write(name, text)
	}
	out := filepath.Join(dir, "out")
	c := Command()
	var said bytes.Buffer
	c.SetErr(&said)
	c.SetArgs(append([]string{"--cloud-config-file-path=" + filepath.Join(dir, "in"), "--output-file-path=" + out, "--creds-path=" + dir}, flags...))
	err := c.Execute()
	data, readErr := os.ReadFile(out)
	if (err == nil) != (readErr == nil) {
		t.Errorf("the command answers %v, and its file %v", err, readErr)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".cloud.conf-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	return string(data), said.String(), err
}

func keys(pairs ...string) map[string]string {
	m := map[string]string{"azure_client_id": "id"}
	for i := 0; i < len(pairs); i += 2 {
		m["azure_"+pairs[i]] = pairs[i+1]
	}
	return m
}

const (
	withSecret = `{"aadClientId":"id","aadClientSecret":"s3"}`
	withToken  = `{"aadClientId":"id","aadFederatedTokenFile":"/t","tenantId":"ten","useFederatedWorkloadIdentityExtension":true}`
)

func TestInject(t *testing.T) {
	secret, token := keys("client_secret", "s3"), keys("federated_token_file", "/t", "tenant_id", "ten")
	const off, identityOff = "--disable-identity-extension-auth", "--enable-azure-workload-identity=false"
	for name, c := range map[string]struct {
		config string
		secret map[string]string
		flags  []string
		want   string
	}{
		"secret":                          {`{}`, secret, nil, withSecret},
		"secret, with a tenant":           {`{}`, keys("client_secret", "s3", "tenant_id", "ten"), nil, withSecret},
		"secret, identity allowed":        {`{}`, secret, []string{"--enable-azure-workload-identity=true"}, withSecret},
		"token":                           {`{}`, token, nil, withToken},
		"token, identity allowed":         {`{}`, token, []string{"--enable-azure-workload-identity", "true"}, withToken},
		"both, identity refused":          {`{}`, keys("client_secret", "s3", "federated_token_file", "/t", "tenant_id", "ten"), []string{identityOff}, withSecret},
		"newlines at the end":             {`{}`, map[string]string{"azure_client_id": "id\n", "azure_client_secret": "s3\r\n"}, nil, withSecret},
		"an empty token file is none":     {`{}`, keys("client_secret", "s3", "federated_token_file", "\n"), nil, withSecret},
		"extension absent":                {`{}`, secret, []string{off}, withSecret},
		"extension turned off":            {`{"useManagedIdentityExtension":true}`, secret, []string{off}, `{"aadClientId":"id","aadClientSecret":"s3","useManagedIdentityExtension":false}`},
		"extension stays":                 {`{"useManagedIdentityExtension":true}`, secret, nil, `{"aadClientId":"id","aadClientSecret":"s3","useManagedIdentityExtension":true}`},
		"what was there and nobody knows": {`{"AADClientID":"old","future":[1.0,"<"]}`, secret, nil, `{"aadClientId":"id","aadClientSecret":"s3","future":[1.0,"<"]}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, said, err := run(t, c.config, c.secret, c.flags...)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if warned := strings.Contains(said, "wins over the credentials"); warned != (name == "extension stays") {
				t.Errorf("said %q", said)
			}
			if strings.Contains(said, "s3") {
				t.Errorf("the secret is in the log: %q", said)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	for name, c := range map[string]struct {
		config string
		secret map[string]string
		flags  []string
		want   string
	}{
		"no config":             {"", keys("client_secret", "x"), nil, "--cloud-config-file-path: stat "},
		"no id":                 {`{}`, map[string]string{"azure_client_secret": "x"}, nil, "failed to read azure_client_id from secret: open "},
		"an empty id":           {`{}`, keys("client_id", "\n", "client_secret", "x"), nil, "failed to read azure_client_id from secret: it is empty"},
		"neither":               {`{}`, keys(), nil, "azure_client_secret should be set up"},
		"neither, but a tenant": {`{}`, keys("tenant_id", "x"), nil, "azure_client_secret should be set up"},
		"both":                  {`{}`, keys("client_secret", "x", "federated_token_file", "/t", "tenant_id", "x"), nil, "azure_client_secret is set while workload identity is enabled"},
		"no tenant":             {`{}`, keys("federated_token_file", "/t"), nil, "azure_tenant_id should be set up"},
		"an empty tenant":       {`{}`, keys("federated_token_file", "/t", "tenant_id", ""), nil, "azure_tenant_id should be set up"},
		"identity refused":      {`{}`, keys("federated_token_file", "/t", "tenant_id", "x"), []string{"--enable-azure-workload-identity=false"}, "azure_client_secret should be set up: the Secret has azure_federated_token_file, but --enable-azure-workload-identity is false"},
		"null":                  {`null`, keys("client_secret", "x"), nil, "couldn't read cloud config from file: "},
		"a list":                {`[]`, keys("client_secret", "x"), nil, "line 1: it is a JSON array; a JSON object is expected"},
		"INI":                   {"[Global]\n", keys("client_secret", "x"), nil, "couldn't read cloud config from file: "},
		"no bool":               {`{}`, keys("client_secret", "x"), []string{"--enable-azure-workload-identity=maybe"}, "want true or false"},
		"readable by all":       {`{}`, keys("client_secret", "x"), []string{"--output-file-mode=0644"}, "want a mode such as 0640"},
		"an argument":           {`{}`, keys("client_secret", "x"), []string{"x"}, "unknown command"},
		"no folder":             {`{}`, keys("client_secret", "x"), []string{"--output-file-path=/nowhere/at/all"}, "couldn't write prepared cloud config to file: "},
		"a folder as result":    {`{}`, keys("client_secret", "x"), []string{"--output-file-path=" + os.TempDir()}, "is not a regular file"},
		"a key twice":           {`{"useManagedIdentityExtension":true,"usemanagedidentityextension":true}`, keys("client_secret", "x"), nil, "are the same to the cloud provider"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := run(t, c.config, c.secret, c.flags...); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %s", err, c.want)
			}
		})
	}
}

// TestRegressionMode: the file with the credentials was readable by everybody.
func TestRegressionMode(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{"in": "{}", "azure_client_id": "id", "azure_client_secret": "x", "out": "old"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for flag, want := range map[string]os.FileMode{"": 0o640, "0600": 0o600, "0440": 0o440} {
		c := Command()
		args := []string{"--cloud-config-file-path=" + dir + "/in", "--output-file-path=" + dir + "/out", "--creds-path=" + dir}
		if flag != "" {
			args = append(args, "--output-file-mode="+flag)
		}
		c.SetArgs(args)
		if err := c.Execute(); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(dir + "/out")
		if err != nil || info.Mode() != want {
			t.Errorf("mode %v, %v; want %v", info.Mode(), err, want)
		}
	}
}
