// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/cloudsim"
)

func TestMain(m *testing.M) { cloudsim.Main(m) }

// body is a VM that the cloud takes.
const body = `{
  "location": "eastus",
  "tags": {"outrigger-key": "k"},
  "properties": {
    "hardwareProfile": {"vmSize": "Standard_D2s_v5"},
    "storageProfile": {
      "imageReference": {"id": "` + ImageID + `"},
      "osDisk": {"name": "disk", "createOption": "FromImage", "deleteOption": "Delete"}
    },
    "osProfile": {"computerName": "vm", "adminUsername": "peerpod", "linuxConfiguration": {"disablePasswordAuthentication": true, "ssh": {"publicKeys": [
      {"path": "/home/peerpod/.ssh/authorized_keys", "keyData": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGJXQ5f2vYjbVqVtBvvwUvzzzgdrrFwI6w+8OHrUbe0N"}]}}},
    "networkProfile": {"networkApiVersion": "2020-11-01", "networkInterfaceConfigurations": [
      {"name": "nic", "properties": {"primary": true, "deleteOption": "Delete", "ipConfigurations": [{"name": "ip", "properties": {"subnet": {"id": "` + SubnetID + `"}}}]}}]}
  }
}`

// client is a plain HTTP client with a token.
type client struct {
	t     *testing.T
	cloud *Cloud
	token string
}

func login(t *testing.T, cloud *Cloud, form url.Values) (int, map[string]any) {
	t.Helper()
	web := &http.Client{Transport: cloud.Transport()}
	t.Cleanup(web.CloseIdleConnections)
	response, err := web.PostForm(cloud.Server.URL+"/"+TenantID+"/oauth2/v2.0/token", form)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var answer map[string]any
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, answer
}

func secretForm() url.Values {
	return url.Values{"grant_type": {"client_credentials"}, "client_id": {ClientID}, "client_secret": {ClientSecret}, "scope": {scope}}
}

func newClient(t *testing.T) *client {
	cloud := New(t, Options{Step: time.Hour}) // nothing moves by itself
	_, answer := login(t, cloud, secretForm())
	token, _ := answer["access_token"].(string)
	return &client{t, cloud, token}
}

// do returns the status, the code of the error and the header.
func (c *client) do(method, path, body string, header ...string) (int, string, http.Header) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.cloud.Server.URL+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	transport := c.cloud.Transport()
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	var refused struct{ Error struct{ Code string } }
	if response.StatusCode >= 400 {
		json.Unmarshal(data, &refused)
	}
	return response.StatusCode, refused.Error.Code, response.Header
}

const vmPath = "/subscriptions/" + SubscriptionID + "/resourceGroups/" + ResourceGroup + "/providers/Microsoft.Compute/virtualMachines/vm-1?api-version=2026-04-01"

// TestStrict spoils the body in one place at a time.
func TestStrict(t *testing.T) {
	c := newClient(t)
	for _, test := range []struct{ old, new, code string }{
		{`"location"`, `"locaton": "x", "location"`, "InvalidRequestContent"},
		{`"vmSize"`, `"vmsize"`, "InvalidRequestContent"},
		{`"primary": true`, `"primary": "yes"`, "InvalidRequestContent"},
		{`"createOption": "FromImage"`, `"createOption": "FromThinAir"`, "InvalidRequestContent"},
		{`"createOption": "FromImage", `, ``, "InvalidRequestContent"},
		{`"location": "eastus",`, ``, "InvalidRequestContent"},
		{`"properties": {
    "hard`, `"properties": {"provisioningState": "Succeeded",
    "hard`, "InvalidRequestContent"},
		{`"tags": {"outrigger-key": "k"}`, `"tags": ["a"]`, "InvalidRequestContent"},
		{`"name": "disk"`, `"name": "disk", "diskSizeGB": 8.5`, "InvalidRequestContent"},
		{`"location": "eastus"`, `"location": "moon"`, "LocationNotAvailableForResourceType"},
		{`Standard_D2s_v5`, `Standard_X`, "InvalidParameter"},
		{`Standard_D2s_v5`, `Standard_EC4as_v5`, "SkuNotAvailable"},
		{`Standard_D2s_v5`, `Standard_DC2as_v5`, "BadRequest"},
		{`versions/1.0.0`, `versions/9.9.9`, "GalleryImageNotFound"},
		{`subnets/pods`, `subnets/absent`, "InvalidResourceReference"},
		{`"networkApiVersion": "2020-11-01", `, ``, "InvalidParameter"},
		{`"adminUsername": "peerpod"`, `"adminUsername": "admin"`, "InvalidParameter"},
		{`/home/peerpod/`, `/root/`, "InvalidParameter"},
		{`ssh-ed25519 AAAA`, `ssh-ed25519 !`, "InvalidParameter"},
		{`"disablePasswordAuthentication": true`, `"disablePasswordAuthentication": true, "provisionVMAgent": false`, ""},
	} {
		spoilt := strings.Replace(body, test.old, test.new, 1)
		if spoilt == body {
			t.Fatalf("%q is not in the body", test.old)
		}
		if _, code, _ := c.do(http.MethodPut, vmPath, spoilt); code != test.code {
			t.Errorf("%s in place of %s: %q, want %q", test.new, test.old, code, test.code)
		}
	}
}

func TestPreconditions(t *testing.T) {
	c := newClient(t)
	for _, step := range []struct {
		method, path, token string
		header              []string
		status              int
		code                string
	}{
		{http.MethodGet, vmPath, "x.y", nil, 401, "InvalidAuthenticationToken"},
		{http.MethodGet, strings.Replace(vmPath, "2026-04-01", "2016-01-01", 1), "", nil, 400, "NoRegisteredProviderFound"},
		{http.MethodGet, strings.TrimSuffix(vmPath, "?api-version=2026-04-01"), "", nil, 400, "MissingApiVersionParameter"},
		{http.MethodGet, strings.Replace(vmPath, SubscriptionID, "other", 1), "", nil, 404, "SubscriptionNotFound"},
		{http.MethodGet, vmPath, "", nil, 404, "ResourceNotFound"},
		{http.MethodPatch, vmPath, "", nil, 404, "InvalidResourceType"},
		{http.MethodPut, vmPath, "", []string{"If-None-Match", "etag"}, 400, "InvalidHeaderValue"},
		{http.MethodPut, vmPath, "", []string{"If-None-Match", "*"}, 201, ""},
		{http.MethodPut, vmPath, "", []string{"If-None-Match", "*"}, 412, "PreconditionFailed"},
		{http.MethodDelete, vmPath, "", nil, 202, ""},
		{http.MethodPut, vmPath, "", []string{"If-None-Match", "*"}, 409, "Conflict"},
	} {
		again := *c
		if step.token != "" {
			again.token = step.token
		}
		if status, code, _ := again.do(step.method, step.path, body, step.header...); status != step.status || code != step.code {
			t.Errorf("%s %s %v: %d %s, want %d %s", step.method, step.path, step.header, status, code, step.status, step.code)
		}
	}
}

func TestTokens(t *testing.T) {
	cloud := New(t, Options{})
	assertion := func(claims Claims) url.Values {
		form := secretForm()
		form.Del("client_secret")
		form.Set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
		form.Set("client_assertion", cloud.FederatedToken(t, claims))
		return form
	}
	with := func(name, value string) url.Values {
		form := secretForm()
		form.Set(name, value)
		return form
	}
	for name, test := range map[string]struct {
		form   url.Values
		status int
	}{
		"secret": {secretForm(), 200}, "federated": {assertion(Claims{}), 200},
		"grant": {with("grant_type", "password"), 400}, "scope": {with("scope", "https://graph.microsoft.com/.default"), 400},
		"client": {with("client_id", "x"), 400}, "wrong secret": {with("client_secret", "x"), 401},
		"issuer": {assertion(Claims{Issuer: "https://x/"}), 401}, "subject": {assertion(Claims{Subject: "x"}), 401}, "audience": {assertion(Claims{Audience: "x"}), 401},
		"late": {assertion(Claims{Issued: -3 * time.Hour, Expires: -time.Hour}), 401}, "early": {assertion(Claims{Issued: time.Hour}), 401}, "forged": {assertion(Claims{Forged: true}), 401},
	} {
		if status, answer := login(t, cloud, test.form); status != test.status {
			t.Errorf("%s: %d %v", name, status, answer)
		}
	}
}
