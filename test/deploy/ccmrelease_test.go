// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// besides are what our installation has that a release has not, with the reason.
var besides = map[string]string{
	"NetworkPolicy openshift-cloud-controller-manager-operator/operator":        "pods that will have a network of their own",
	"NetworkPolicy openshift-cloud-controller-manager/cloud-controller-manager": "pods that will have a network of their own",
	"NetworkPolicy openshift-cloud-controller-manager/cloud-node-manager":       "pods that will have a network of their own",
}

// TestInstallationHasTheNamesOfARelease: where there is a release its objects are there
// already, and whoever gives the cluster back leaves none of another name. Clouds are
// asked for all that a release asks for; on Google Cloud for what the provider reads and
// waits for besides.
func TestInstallationHasTheNamesOfARelease(t *testing.T) {
	text, err := os.ReadFile("testdata/release.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var release struct {
		Objects     []string            `json:"objects"`
		Credentials map[string][]string `json:"credentials"`
	}
	if err := yaml.UnmarshalStrict(text, &release); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range parse(t, onOpenShift.render(t)) {
		name := o.GetKind() + " " + strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
		if !strings.HasPrefix(o.GetName(), "ccm-operator") && o.GetKind() != "Deployment" && besides[name] == "" {
			names = append(names, name)
		}
		if o.GetKind() != "CredentialsRequest" {
			continue
		}
		asked, wanted := asks(t, o), release.Credentials[o.GetName()]
		if o.GetName() == "openshift-gcp-ccm" {
			asked = slices.DeleteFunc(asked, func(p string) bool { return !slices.Contains(wanted, p) })
		}
		if diff := gocmp.Diff(wanted, asked); diff != "" {
			t.Errorf("%s: %s", o.GetName(), diff)
		}
	}
	if diff := gocmp.Diff(release.Objects, slices.Sorted(slices.Values(names))); diff != "" {
		t.Error(diff)
	}
}

// asks are the permissions of a request, or the roles of its policies with what they are
// of, in order.
func asks(t *testing.T, o *unstructured.Unstructured) (all []string) {
	t.Helper()
	all, _, err := unstructured.NestedStringSlice(o.Object, "spec", "providerSpec", "permissions")
	if err != nil {
		t.Fatal(err)
	}
	policies, _, err := unstructured.NestedSlice(o.Object, "spec", "providerSpec", "policies")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range policies {
		p := p.(map[string]any)
		of := p["attributes"].([]any)[0].(map[string]any)
		for _, role := range p["roles"].([]any) {
			parts := strings.Split(role.(string), ":")
			all = append(all, of["name"].(string)+"="+of["value"].(string)+" "+strings.Join(parts[len(parts)-2:], ":"))
		}
	}
	slices.SortFunc(all, cmp.Compare[string])
	return all
}
