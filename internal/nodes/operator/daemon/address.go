// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"

	"k8s.io/client-go/rest"
)

// addressFile has on OpenShift's nodes the address of the API server that kubelets
// use, as lines of a shell: the Service's needs a network, which there is none of
// before a cloud controller manager has initialized Nodes.
const addressFile = "/etc/kubernetes/apiserver-url.env"

// useNodesAddress takes the address of the file, if there is one, in place of the
// Service's.
func useNodesAddress(api *rest.Config, file string) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the API server's address: %w", err)
	}
	is := variables(string(text))
	host, port := is["KUBERNETES_SERVICE_HOST"], is["KUBERNETES_SERVICE_PORT"]
	if host == "" || port == "" {
		return fmt.Errorf("%s does not set KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT", file)
	}
	api.Host = "https://" + net.JoinHostPort(host, port)
	return nil
}

// variables reads lines NAME=VALUE, with the value perhaps in quotes.
func variables(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		all[name] = strings.Trim(value, `"'`)
	}
	return all
}
