// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/outrigger/outrigger/provider"
)

// do carries out one command.
func (w *walk) do(args []string, env map[string]string) (string, error) {
	switch args[0] {
	case "make":
		return w.make(args[1:], env)
	case "helm":
		return w.helm(args[1:])
	case "kubectl":
		return w.kubectl(args[1:])
	case "outrigger":
		return w.outrigger(args[1:], env)
	}
	return w.answer(args)
}

// clusterIssuer signs the service accounts' tokens of the cluster.
const clusterIssuer = "https://cluster.example"

// kubectl answers for the cluster in which the page installs.
func (w *walk) kubectl(args []string) (string, error) {
	line := strings.Join(args, " ")
	exists := func(name string) (string, error) {
		kind, name, _ := strings.Cut(name, "/")
		if !slices.ContainsFunc(w.objects, func(o *unstructured.Unstructured) bool {
			return strings.EqualFold(o.GetKind(), kind) && o.GetName() == name
		}) {
			return "", fmt.Errorf("%s %s is not installed", kind, name)
		}
		return name, nil
	}
	rollout := regexp.MustCompile(`^-n ` + namespace + ` rollout status (\S+)$`).FindStringSubmatch(line)
	switch {
	case line == "apply -f nginx.yaml":
		return "", w.create("nginx.yaml")
	case line == "delete -f nginx.yaml":
		return "", w.remove("nginx.yaml")
	case strings.HasPrefix(line, "wait --for=condition=Ready ") && strings.HasSuffix(line, " pod/nginx"):
		if w.pods["nginx.yaml"] == nil {
			return "", errors.New("there is no such pod")
		}
		return "", nil
	case strings.HasPrefix(line, "wait --for=delete peerpods --all --all-namespaces "):
		return "", w.waitForNone()
	case line == "get runtimeclass kata-remote":
		return exists("RuntimeClass/kata-remote")
	case rollout != nil:
		return exists(rollout[1])
	case line == "get --raw /.well-known/openid-configuration":
		return `{"issuer": "` + clusterIssuer + `"}`, nil
	case line == "get nodes -o json" && w.site.nodes != "":
		return w.site.nodes, nil
	case line == "create namespace "+namespace:
		return "", nil
	case strings.HasPrefix(line, "-n "+namespace+" create secret generic "):
		for _, name := range strings.Split(flagsOf(args)["--from-file"], ",") {
			if _, err := w.file(name); err != nil {
				return "", err
			}
		}
		return "", nil
	case line == "label nodes --all node.kubernetes.io/worker=":
		return "", nil
	case line == "delete crd peerpods.confidentialcontainers.org podvmpools.confidentialcontainers.org", line == "delete namespace "+namespace:
		if w.objects != nil {
			return "", errors.New("it is still installed")
		}
		return "", nil
	}
	return "", errors.New("no page is known to need this command")
}

// flagsOf returns flags with their values; one without is "true", values of a repeated
// one are joined by commas.
func flagsOf(args []string) map[string]string {
	flags := map[string]string{}
	for i := 0; i < len(args); i++ {
		if !strings.HasPrefix(args[i], "-") {
			continue
		}
		name, value, joined := strings.Cut(args[i], "=")
		if !joined && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			i++
			value = args[i]
		} else if !joined {
			value = "true"
		}
		if flags[name] != "" {
			value = flags[name] + "," + value
		}
		flags[name] = value
	}
	return flags
}

// answer is what a tool of the site says. A command that it does not know is an error.
func (w *walk) answer(args []string) (string, error) {
	line := strings.Join(args[1:], " ")
	for _, a := range w.site.tools[args[0]] {
		if line != a.words && !strings.HasPrefix(line, a.words+" ") {
			continue
		}
		flags := flagsOf(args[1:])
		flags["--line"], flags["--last"] = line, args[len(args)-1]
		for name, want := range a.flags {
			if got, there := flags[name]; !there || want != "" && got != want {
				return "", fmt.Errorf("flag %s is %q, want %q", name, got, want)
			}
		}
		expand := func(text string) string {
			return os.Expand(text, func(name string) string { return cmp.Or(flags["--"+name], flags["-"+name]) })
		}
		if a.makes != "" {
			w.made = append(w.made, expand(a.makes))
		}
		if a.removes != "" {
			at := slices.Index(w.made, expand(a.removes))
			if at < 0 {
				return "", fmt.Errorf("%s is removed and was not made: there are %q", expand(a.removes), w.made)
			}
			w.made = slices.Delete(w.made, at, at+1)
		}
		if a.says == nil {
			return "", nil
		}
		return a.says(flags)
	}
	return "", errors.New("the page asks for what this test has no answer for")
}

// installed takes over what was rendered, and verifies it against the cloud as the
// adaptor does with CLOUD_CONFIG_VERIFY.
func (w *walk) installed(render []byte) error {
	w.objects = parse(w.t, render)
	w.open, w.secret = settings(w.t, w.objects)
	schema, err := schemaOf(w.open["CLOUD_PROVIDER"])
	if err != nil {
		return err
	}
	if err := check(schema, w.open, w.secret); err != nil {
		return err
	}
	if w.site.blind {
		return nil
	}
	return w.use(func(ctx context.Context, p provider.Provider) error { return provider.VerifyConfig(ctx, p) })
}

func (w *walk) uninstalled() error {
	if len(w.pods) > 0 {
		return errors.New("it is removed while pods run")
	}
	if w.objects == nil {
		return errors.New("nothing is installed")
	}
	w.objects = nil
	return nil
}

// make does what the targets do that pages use.
func (w *walk) make(args []string, env map[string]string) (string, error) {
	if strings.Join(args, " ") == "bin/outrigger bin/provider-"+w.provider {
		return "", nil
	}
	if env["CLOUD_PROVIDER"] != w.provider {
		return "", fmt.Errorf("CLOUD_PROVIDER is %q", env["CLOUD_PROVIDER"])
	}
	switch strings.Join(args, " ") {
	case "podvm-image":
		match := regexp.MustCompile(`bin/podvm/podvm-[a-z0-9.-]+`).FindString(strings.Join(commandsOf(w.t, w.page()), ""))
		if err := os.MkdirAll(filepath.Join(w.dir, "bin/podvm"), 0o755); err != nil {
			return "", err
		}
		return "", w.site.image(filepath.Join(w.dir, match))
	case "image image-qemu":
		if err := os.MkdirAll(filepath.Join(w.dir, "bin/images/cloud-api-adaptor"), 0o755); err != nil {
			return "", err
		}
		return "", nil
	case "image push":
		if env["REGISTRY"] == "" {
			return "", errors.New("REGISTRY is not set")
		}
		return "", nil
	case "deploy":
		return "", w.deploy(env)
	case "undeploy":
		return "", w.uninstalled()
	}
	return "", errors.New("no page is known to need this target")
}

// deploy renders what `make deploy` applies, with its own script.
func (w *walk) deploy(env map[string]string) error {
	kubectl := w.outside("kubectl", "shift; exec "+tool(w.t, "kustomize")+` build "$@"`)
	render := exec.Command("deploy/deploy.sh", "render", w.provider)
	render.Dir = w.dir
	render.Env = []string{"PATH=" + os.Getenv("PATH"), "KUBECTL=bash " + kubectl, "PREFIX=" + env["REGISTRY"], "NODE_INSTALLER=" + env["NODE_INSTALLER"]}
	out, err := render.Output()
	if err != nil {
		return err
	}
	return w.installed(out)
}

// helm renders what it would install.
func (w *walk) helm(args []string) (string, error) {
	switch args[0] {
	case "install":
		args = slices.DeleteFunc(args[1:], func(a string) bool { return a == "--create-namespace" })
		render := exec.Command(tool(w.t, "helm"), append([]string{"template", "--kube-version", kubeVersion}, args...)...)
		render.Dir = w.dir
		out, err := render.Output()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			return "", fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		if err != nil {
			return "", err
		}
		return "", w.installed(out)
	case "uninstall":
		return "", w.uninstalled()
	}
	return "", errors.New("no page is known to need this command")
}

// outrigger imports images as the provider's own program does.
func (w *walk) outrigger(args []string, env map[string]string) (string, error) {
	flags := flagsOf(args)
	source := provider.ImageSource{Name: flags["--name"], Location: args[len(args)-1], Arch: "amd64"}
	if strings.Join(args[:2], " ") != "image import" || flags["--provider"] != w.provider {
		return "", errors.New("no page is known to need this command")
	}
	if !source.IsURL() {
		source.Location = filepath.Join(w.dir, source.Location)
	}
	var err error
	if source.Format, err = provider.ImageFormat(source.Location); err != nil {
		return "", err
	}
	if err := errors.Join(source.Check(), source.CheckFile()); err != nil {
		return "", err
	}
	before := w.site.called()
	manager := w.cloud(env).(interface {
		NewImporter(context.Context) (provider.Provider, error)
	})
	p, err := manager.NewImporter(w.t.Context())
	if err != nil {
		return "", err
	}
	importer, ok := provider.As[provider.ImageImporter](p)
	if !ok {
		return "", errors.New("the provider imports no images")
	}
	id, err := importer.ImportImage(w.t.Context(), source, func(provider.ImageProgress) {})
	for _, call := range w.site.called() {
		if !slices.Contains(before, call) {
			w.importing = append(w.importing, call)
		}
	}
	if !w.site.countsImages {
		w.made = append(w.made, "image "+id)
	}
	return id, errors.Join(err, p.Teardown())
}

// grantStatements notes what a policy of statements with actions allows.
func (w *walk) grantStatements(document string) error {
	var policy struct {
		Statement []struct {
			Effect string
			Action []string
		}
	}
	if err := json.Unmarshal([]byte(document), &policy); err != nil {
		return err
	}
	for _, s := range policy.Statement {
		if s.Effect != "Allow" {
			return fmt.Errorf("effect %q", s.Effect)
		}
		w.granted = append(w.granted, s.Action...)
	}
	return nil
}

// outside writes a file that is not of the page, such as a token, and returns its path.
func (w *walk) outside(name, content string) string {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// file returns the content of a file that the page has, by its file:// or its name.
func (w *walk) file(argument string) (string, error) {
	data, err := os.ReadFile(filepath.Join(w.dir, strings.TrimPrefix(strings.TrimPrefix(argument, "file://"), "@")))
	return string(data), err
}
