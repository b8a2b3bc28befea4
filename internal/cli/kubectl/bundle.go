// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/outrigger/outrigger/internal/version"
)

const (
	// logLines and logBytes bound the log of one container.
	logLines = "5000"
	logBytes = "4194304"
)

func (a *App) bundleCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "support-bundle", Short: "Write an archive with what somebody who helps needs", Args: cobra.NoArgs,
		Long: `Write a .tar.gz with what somebody who helps needs: PeerPods, the specs of their
pods, Events, nodes, the manifests and logs of Outrigger and its settings. Secrets
are not in it: values of environment variables, commands, arguments and most
annotations of pods are left out, and every value of a Secret of Outrigger's
namespace that you may read and that has four characters or more is struck out
wherever it stands. Look into it all the same before you hand it on: names of
pods, nodes and images are in it. What you may not read is left out and listed in
missing.txt. Without -n all namespaces are in it.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := a.connect()
			if err != nil {
				return err
			}
			if file == "" {
				file = "outrigger-support-" + a.Now().UTC().Format("20060102-150405") + ".tar.gz"
			}
			return a.writeBundle(cmd.Context(), c, file)
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "file to write, which must not exist; - is the standard output (default outrigger-support-TIME.tar.gz)")
	return cmd
}

// writeBundle writes a file that only its owner can read, or nothing.
func (a *App) writeBundle(ctx context.Context, c *cluster, file string) error {
	if file == "-" {
		return a.bundle(ctx, c, a.Stdout)
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("--file: %w", err)
	}
	if err := errors.Join(a.bundle(ctx, c, f), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", file, err), os.Remove(file))
	}
	fmt.Fprintln(a.Stdout, "wrote "+file)
	return nil
}

// bundle is an archive in the making.
type bundle struct {
	app     *App
	c       *cluster
	tar     *tar.Writer
	strike  *redactor
	missing []string
	err     error // of writing; what cannot be read is only missing
}

func (a *App) bundle(ctx context.Context, c *cluster, w io.Writer) error {
	zip := gzip.NewWriter(w)
	b := &bundle{app: a, c: c, tar: tar.NewWriter(zip), strike: &redactor{}}
	b.learnSecrets(ctx)
	b.addConfig(ctx) // before all else: it learns what should have been a secret
	b.add("README.txt", []byte("Made by kubectl-outrigger "+version.String()+" at "+a.Now().UTC().Format(time.RFC3339)+
		".\nSecrets are removed; what could not be read is in missing.txt.\n"))
	b.addJSON("check.json", a.check(ctx, c, false))
	b.addCluster(ctx)
	b.addPods(ctx)
	b.addLogs(ctx)
	b.add("missing.txt", []byte(strings.Join(append(b.missing, ""), "\n")))
	return errors.Join(b.err, ctx.Err(), b.tar.Close(), zip.Close())
}

// add puts a file into the archive, without the secrets that are known.
func (b *bundle) add(name string, text []byte) {
	if b.err != nil {
		return
	}
	text = b.strike.out(text)
	b.err = b.tar.WriteHeader(&tar.Header{Name: path.Join("outrigger-support", name), Mode: 0o600, Size: int64(len(text)), ModTime: b.app.Now()})
	if b.err == nil {
		_, b.err = b.tar.Write(text)
	}
}

func (b *bundle) addJSON(name string, v any) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		b.lacks(name, err)
		return
	}
	b.add(name, text)
}

func (b *bundle) lacks(what string, err error) {
	b.missing = append(b.missing, what+": "+err.Error())
}

// addList puts the objects of a collection that keep wants into one file.
func (b *bundle) addList(ctx context.Context, name, at string, keep func(map[string]any) bool) []map[string]any {
	items, err := list[map[string]any](ctx, b.c, at, nil)
	if err != nil {
		b.lacks(name, err)
		return nil
	}
	items = slices.DeleteFunc(items, func(o map[string]any) bool { return keep != nil && !keep(o) })
	for _, o := range items {
		harmless(o)
	}
	b.addJSON(name, items)
	return items
}

func (b *bundle) addObject(ctx context.Context, name, at string) {
	var o map[string]any
	if err := b.c.Get(ctx, at, &o); err != nil {
		b.lacks(name, err)
		return
	}
	harmless(o)
	b.addJSON(name, o)
}

// addCluster adds what is not of a pod.
func (b *bundle) addCluster(ctx context.Context) {
	system := b.app.system
	b.addObject(ctx, "version.json", "/version")
	b.addObject(ctx, "crd.json", api(definitions, "", "customresourcedefinitions", crdName))
	b.addObject(ctx, "runtimeclass.json", api(nodeGroup, "", "runtimeclasses", RuntimeClass))
	b.addObject(ctx, "webhook.json", api(admission, "", "mutatingwebhookconfigurations", webhookName))
	b.addList(ctx, "nodes.json", core("", "nodes"), nil)
	b.addList(ctx, "daemonsets.json", api(apps, system, "daemonsets"), nil)
	b.addList(ctx, "deployments.json", api(apps, system, "deployments"), nil)
}

// addPods adds PeerPods, the pods that run in VMs, and the Events of their
// namespaces.
func (b *bundle) addPods(ctx context.Context) {
	claims := b.addList(ctx, "peerpods.json", api(peerPodGroup, b.app.namespace, "peerpods"), nil)
	owners, namespaces := map[string]bool{}, map[string]bool{b.app.system: true}
	for _, pp := range claims {
		owners[text(pp, "spec", "podUID")] = true
		namespaces[text(pp, "metadata", "namespace")] = true
	}
	pods := b.addList(ctx, "pods.json", core(b.app.namespace, "pods"), func(p map[string]any) bool {
		return owners[text(p, "metadata", "uid")] || text(p, "spec", "runtimeClassName") == RuntimeClass
	})
	for _, p := range pods {
		namespaces[text(p, "metadata", "namespace")] = true
	}
	for namespace := range namespaces {
		b.addList(ctx, path.Join("events", namespace+".json"), core(namespace, "events"), nil)
	}
}

// addLogs adds what the daemons said, those that have crashed too.
func (b *bundle) addLogs(ctx context.Context) {
	pods := b.addList(ctx, "system-pods.json", core(b.app.system, "pods"), isDaemon)
	for _, p := range pods {
		name := text(p, "metadata", "name")
		containers, _, _ := unstructured.NestedSlice(p, "spec", "containers")
		for _, container := range containers {
			c, _ := container.(map[string]any)
			b.addLog(ctx, name, text(c, "name"))
		}
	}
}

// isDaemon reports whether a pod is Outrigger's; others may share the namespace.
func isDaemon(p map[string]any) bool {
	name := text(p, "metadata", "labels", "app.kubernetes.io/name")
	ours := []string{"cloud-api-adaptor", relayName, controllerName, webhookName}
	return slices.Contains(ours, name) || strings.HasPrefix(name, "provider-")
}

func (b *bundle) addLog(ctx context.Context, pod, container string) {
	at := core(b.app.system, "pods", pod, "log")
	for _, previous := range []string{"false", "true"} {
		name := path.Join("logs", pod, container+".log")
		if previous == "true" {
			name = path.Join("logs", pod, container+".previous.log")
		}
		output, err := b.c.Raw(ctx, at, map[string]string{"container": container, "tailLines": logLines, "limitBytes": logBytes, "timestamps": "true", "previous": previous})
		switch {
		case err == nil:
			b.add(name, output)
		case previous == "false":
			b.lacks(name, err)
		}
	}
}

// text returns the string at a path of an object, empty when there is none.
func text(o map[string]any, at ...string) string {
	s, _, _ := unstructured.NestedString(o, at...)
	return s
}
