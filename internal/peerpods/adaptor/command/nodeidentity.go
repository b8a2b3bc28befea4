// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/outrigger/outrigger/internal/program"
)

// nodeIdentityCommand is a program of its own beside the providers.
const nodeIdentityCommand = "node-identity"

// nodeIdentity copies the kubelet's kubeconfig, the first of those that is there.
// It runs before the adaptor, so that the adaptor has that file and not the folder,
// where there may be an administrator's or an authority's key.
func (c *Command) nodeIdentity(args []string) error {
	if len(args) != 2 || asksForHelp(args[0]) {
		return program.Usagef("want: cloud-api-adaptor %s KUBECONFIG,... COPY", nodeIdentityCommand)
	}
	for path := range strings.SplitSeq(args[0], ",") {
		config, err := clientcmd.LoadFromFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = withFiles(config, path)
		}
		if err == nil {
			err = clientcmd.WriteToFile(*config, args[1])
		}
		if err != nil {
			return fmt.Errorf("the kubelet's kubeconfig %s: %w", path, err)
		}
		fmt.Fprintf(c.Stdout, "the node's identity is that of %s\n", path)
		return nil
	}
	fmt.Fprintf(c.Stdout, "none of %s exists: pull secrets are read as the service account\n", args[0])
	return nil
}

// withFiles keeps the current context, and takes in what lies below the folder
// of the kubeconfig. Other files, such as the certificate that the kubelet
// renews, stay where they are.
func withFiles(config *api.Config, path string) error {
	if err := api.MinifyConfig(config); err != nil {
		return err
	}
	folder := filepath.Dir(path)
	for _, cluster := range config.Clusters {
		if err := takeIn(folder, &cluster.CertificateAuthority, &cluster.CertificateAuthorityData); err != nil {
			return err
		}
	}
	for _, user := range config.AuthInfos {
		if err := errors.Join(takeIn(folder, &user.ClientCertificate, &user.ClientCertificateData), takeIn(folder, &user.ClientKey, &user.ClientKeyData)); err != nil {
			return err
		}
	}
	return nil
}

func takeIn(folder string, file *string, data *[]byte) error {
	if *file == "" {
		return nil
	}
	if !filepath.IsAbs(*file) {
		*file = filepath.Join(folder, *file)
	}
	if rel, err := filepath.Rel(folder, *file); err != nil || !filepath.IsLocal(rel) {
		return nil
	}
	read, err := os.ReadFile(*file)
	*data, *file = read, ""
	return err
}
