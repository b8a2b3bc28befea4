// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// through is a client that goes as Env says.
func through(t *testing.T, r *Recorder) *http.Client {
	t.Helper()
	vars := r.Env()
	proxy, err := url.Parse(vars["HTTPS_PROXY"])
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(vars["SSL_CERT_FILE"])
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		t.Fatal("no certificate")
	}
	transport := &http.Transport{Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{RootCAs: roots}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// TestRecord: the provider sees what the cloud said, byte by byte, and the file
// has it without secrets.
func TestRecord(t *testing.T) {
	const answer = `{"server": {"id": "abc", "adminPass": "p4ssw0rdOfTheServer"}, "metadata": [{"key": "user-data", "value": "#cloud-config the key"}]}`
	cloud := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, in *http.Request) {
		body, _ := io.ReadAll(in.Body)
		if in.Header.Get("X-Auth-Token") != "tokenOfTheProvider" || !bytes.Contains(body, []byte("dXNlcg")) {
			w.WriteHeader(http.StatusBadRequest)
			w.Write(body) // some clouds echo what they refuse
			return
		}
		w.Header().Set("X-Subject-Token", "anotherToken")
		w.Header().Set("X-Openstack-Request-Id", "req-1")
		io.WriteString(w, answer)
	}))
	t.Cleanup(cloud.Close)
	dir := filepath.Join(t.TempDir(), "records")
	const known = "knownSecretOfTheUser"
	r, err := Start(dir, cloud.Client().Transport)
	if err != nil {
		t.Fatal(err)
	}
	r.Hide(known)
	client := through(t, r)
	for _, body := range []string{`{"server": {"name": "n", "user_data": "dXNlcg=="}}`, `refused: ` + known + ` and ` + base64.StdEncoding.EncodeToString([]byte(known))} {
		in, err := http.NewRequest(http.MethodPost, cloud.URL+"/servers?marker=m&X-Amz-Signature=s1gnature", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		in.Header.Set("X-Auth-Token", "tokenOfTheProvider")
		reply, err := client.Do(in)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(reply.Body)
		reply.Body.Close()
		if want := map[int]string{200: answer, 400: body}[reply.StatusCode]; err != nil || string(text) != want {
			t.Errorf("%d %s, %v", reply.StatusCode, text, err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	checkFile(t, filepath.Join(dir, File), known)
	if _, err := Start(dir, nil); err == nil || !strings.Contains(err.Error(), "another folder") {
		t.Errorf("a second record in one folder: %v", err)
	}
}

func checkFile(t *testing.T, path, known string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{known, "tokenOfTheProvider", "anotherToken", "p4ssw0rdOfTheServer", "dXNlcg", "#cloud-config", "s1gnature", base64.RawStdEncoding.EncodeToString([]byte(known))} {
		if strings.Contains(string(text), secret) {
			t.Errorf("%s is in the file:\n%s", secret, text)
		}
	}
	var all []Exchange
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var e Exchange
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	if len(all) != 2 || all[0].Status != 200 || all[0].Path != "/servers" || !strings.Contains(all[0].Query, "marker=m") || !strings.Contains(all[0].Response, `"id":"abc"`) ||
		all[0].Answered["X-Openstack-Request-Id"] != "req-1" || !strings.Contains(all[0].Request, `"name":"n"`) || all[1].Status != 400 {
		t.Errorf("%+v", all)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}
