// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/test/cloudsim"
)

// cloud returns the provider's manager with settings. Those of the site come first, as
// they are where the simulated cloud is.
func (w *walk) cloud(settings ...map[string]string) config.Configurable {
	manager := provider.Get(w.provider).(config.Configurable).Fresh()
	flags := flag.NewFlagSet(w.provider, flag.ContinueOnError)
	manager.ParseCmd(flags)
	if err := flags.Parse(w.site.flags); err != nil {
		w.t.Error(err)
	}
	manager.(interface{ LoadFrom(func(string) string) }).LoadFrom(func(name string) string {
		for _, values := range append([]map[string]string{w.site.env}, settings...) {
			if value := values[name]; value != "" {
				return cmp.Or(w.site.means[value], value)
			}
		}
		return ""
	})
	return manager
}

// use calls do with the provider that the installed adaptor has.
func (w *walk) use(do func(context.Context, provider.Provider) error) error {
	if w.objects == nil {
		return errors.New("nothing is installed")
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	p, err := provider.Open(ctx, w.cloud(w.open, w.secret))
	if err != nil {
		return err
	}
	return errors.Join(do(ctx, p), p.Teardown())
}

// imageRemoved notes that an image is removed, whose id ends in its name.
func (w *walk) imageRemoved(name string) error {
	at := slices.IndexFunc(w.made, func(what string) bool { return strings.HasPrefix(what, "image ") && strings.HasSuffix(what, name) })
	if at < 0 {
		return fmt.Errorf("image %s was not made: there are %q", name, w.made)
	}
	w.made = slices.Delete(w.made, at, at+1)
	return nil
}

// sandbox is the pod's.
const sandbox = "0123456789abcdef0123456789abcdef"

// create makes the VM of a pod, as the adaptor does.
func (w *walk) create(file string) error {
	data, err := os.ReadFile(filepath.Join(w.dir, file))
	if err != nil {
		return err
	}
	pod := parse(w.t, data)[0]
	class, _, _ := unstructured.NestedString(pod.Object, "spec", "runtimeClassName")
	if !slices.ContainsFunc(w.objects, func(o *unstructured.Unstructured) bool { return id(o) == "RuntimeClass "+class }) {
		return fmt.Errorf("there is no RuntimeClass %q", class)
	}
	if w.site.blind {
		w.pods[file] = &provider.Instance{Name: "podvm-" + pod.GetName()}
		return nil
	}
	return w.use(func(ctx context.Context, p provider.Provider) error {
		instance, err := p.CreateInstance(ctx, pod.GetName(), sandbox, cloudinit.Raw("#cloud-config\n"), provider.InstanceTypeSpec{Tags: cloudsim.OwnerTags(sandbox)})
		if err == nil {
			w.pods[file] = instance
		}
		return err
	})
}

func (w *walk) remove(file string) error {
	instance := w.pods[file]
	if instance == nil {
		return errors.New("there is no such pod")
	}
	delete(w.pods, file)
	if w.site.blind {
		return nil
	}
	return w.use(func(ctx context.Context, p provider.Provider) error { return p.DeleteInstance(ctx, instance.ID) })
}

// instances are the names of those that the provider lists.
func (w *walk) instances() (names []string, err error) {
	err = w.use(func(ctx context.Context, p provider.Provider) error {
		lister, ok := provider.As[provider.Lister](p)
		if !ok {
			return errors.New("the provider lists no instances")
		}
		list, err := lister.ListInstances(ctx, map[string]string{provider.TagKey: sandbox})
		for _, i := range list {
			if i.State != provider.StateDeleting {
				names = append(names, i.Name)
			}
		}
		return err
	})
	return names, err
}

// waitForNone waits until the provider lists no instance.
func (w *walk) waitForNone() error {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		names, err := w.names(), error(nil)
		if !w.site.blind {
			names, err = w.instances()
		}
		if err != nil || len(names) == 0 {
			return err
		}
		if len(w.pods) > 0 || time.Now().After(deadline) {
			return fmt.Errorf("there are %q", names)
		}
	}
}

// nameLines says the names of the pods' VMs, each in a line.
func (w *walk) nameLines(map[string]string) (string, error) {
	text := ""
	for _, name := range w.names() {
		text += name + "\n"
	}
	return text, nil
}

// wantLast is an answer to a command whose last word must be want.
func wantLast(want string) func(map[string]string) (string, error) {
	return func(flags map[string]string) (string, error) {
		if flags["--last"] != want {
			return "", fmt.Errorf("the last word is %q, want %q", flags["--last"], want)
		}
		return "", nil
	}
}

// listed returns the names in backquotes of a generated part of a provider's page.
func listed(t *testing.T, provider, part string) (names []string) {
	t.Helper()
	_, rest, _ := strings.Cut(page(t, "providers/"+provider+".md"), "<!-- begin generated: "+part+" -->")
	text, _, _ := strings.Cut(rest, "<!-- end generated: "+part+" -->")
	for _, match := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(text, -1) {
		names = append(names, match[1])
	}
	if len(names) == 0 {
		t.Fatalf("the page of %s has no part %s", provider, part)
	}
	return names
}

// names are those of the VMs of the pods that were applied.
func (w *walk) names() (names []string) {
	for _, i := range w.pods {
		names = append(names, i.Name)
	}
	return names
}
