// SPDX-License-Identifier: Apache-2.0

package nodeinstall

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// accountDir is where a pod finds its service account.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// owner is the DaemonSet of this pod.
type owner struct {
	server, namespace, name string
	dir                     string // of the service account
}

// removed reports whether the DaemonSet is being removed or gone. A pod that ends
// for another reason, such as a new version of it, leaves the node as it is.
//
// Account and role are removed together with the DaemonSet and may be gone first. So a
// refusal by the API server also counts as removed. If there was another reason, the
// next pod installs again.
func (o *owner) removed(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	response, err := o.get(ctx)
	if err != nil {
		return false, fmt.Errorf("ask for DaemonSet %s/%s: %w", o.namespace, o.name, err)
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusNotFound, http.StatusUnauthorized, http.StatusForbidden:
		return true, nil
	case http.StatusOK:
	default:
		return false, fmt.Errorf("ask for DaemonSet %s/%s: %s", o.namespace, o.name, response.Status)
	}
	var object struct {
		Metadata struct{ DeletionTimestamp string }
	}
	if err := json.NewDecoder(response.Body).Decode(&object); err != nil {
		return false, fmt.Errorf("ask for DaemonSet %s/%s: %w", o.namespace, o.name, err)
	}
	return object.Metadata.DeletionTimestamp != "", nil
}

func (o *owner) get(ctx context.Context) (*http.Response, error) {
	token, err := os.ReadFile(filepath.Join(o.dir, "token"))
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(filepath.Join(o.dir, "ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}}
	url := fmt.Sprintf("https://%s/apis/apps/v1/namespaces/%s/daemonsets/%s", o.server, o.namespace, o.name)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	return client.Do(request)
}

// owner returns that of a pod; nil outside of a cluster.
func (s *settings) owner(getenv func(string) string) *owner {
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || s.DaemonSet == "" {
		return nil
	}
	return &owner{server: net.JoinHostPort(host, port), namespace: s.Namespace, name: s.DaemonSet, dir: accountDir}
}
