// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	capiInfrastructure = "infrastructure.cluster.x-k8s.io"
	capiProviderLabel  = "cluster.x-k8s.io/provider"
	capiClusterLabel   = "cluster.x-k8s.io/cluster-name"
	capdLabel          = "infrastructure-docker"
)

// dockerKinds are the kinds that both providers have, and devKinds those that only Cluster API's has.
var (
	dockerKinds = []string{"dockerclusters", "dockermachines", "dockermachinepools", "dockerclustertemplates", "dockermachinetemplates", "dockermachinepooltemplates"}
	devKinds    = []string{"devclusters", "devmachines", "devmachinepools", "devclustertemplates", "devmachinetemplates", "devmachinepooltemplates"}
)

type dockerSpec struct {
	Bootstrapped *bool `json:"bootstrapped"`
	Backend      struct {
		Docker *struct{} `json:"docker"`
	} `json:"backend"`
}

type dockerObject struct {
	object
	Spec struct {
		dockerSpec
		Template struct {
			Spec dockerSpec `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
}

// planDocker plans the move from Cluster API's Docker provider.
func (a *App) planDocker(ctx context.Context, c *cluster) (*Plan, error) {
	p := newPlan("Cluster API's Docker provider", "migrate-capd.md")
	managers, err := list[object](ctx, c, api(apps, "", "deployments"), map[string]string{"labelSelector": capiProviderLabel + "=" + capdLabel})
	if err != nil {
		return nil, fmt.Errorf("list Deployments: %w", err)
	}
	for i := range managers {
		m := managers[i].Metadata
		if m.Labels[capiProviderLabel] == capdLabel {
			p.found("Deployment "+m.Namespace+"/"+m.Name, "is removed: both providers have the same definitions, so the two cannot be in one cluster")
		}
	}
	if len(p.Found) == 0 {
		return nil, fmt.Errorf("nothing to move: no Deployment has the label %s=%s", capiProviderLabel, capdLabel)
	}
	var clusters []string
	for _, kind := range slices.Concat(dockerKinds, devKinds) {
		all, err := p.dockerObjects(ctx, c, kind)
		if err != nil {
			return nil, err
		}
		for i := range all {
			p.dockerObject(kind, &all[i])
			if m := all[i].Metadata; strings.HasSuffix(kind, "clusters") {
				clusters = append(clusters, "kubectl delete clusters.cluster.x-k8s.io --wait --ignore-not-found --namespace "+m.Namespace+" "+cmp.Or(m.Labels[capiClusterLabel], m.Name))
			}
		}
	}
	p.dockerSteps(clusters)
	return p, nil
}

// dockerObjects finds the objects of a kind, in a version that is served: the API server converts them all to it.
func (p *Plan) dockerObjects(ctx context.Context, c *cluster, kind string) ([]dockerObject, error) {
	var d definition
	err := c.Get(ctx, api(definitions, "", "customresourcedefinitions", kind+"."+capiInfrastructure), &d)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the definition of %s: %w", kind, err)
	}
	version := ""
	for _, v := range d.Spec.Versions {
		if v.Served {
			version = v.Name
		}
	}
	all, err := list[dockerObject](ctx, c, api("/apis/"+capiInfrastructure+"/"+version, "", kind), nil)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", kind, err)
	}
	if len(all) > 0 {
		p.found(kind, "%d", len(all))
	}
	return all, nil
}

func (p *Plan) dockerObject(kind string, o *dockerObject) {
	name := o.Metadata.Namespace + "/" + o.Metadata.Name
	if other, is := strings.CutPrefix(kind, "dev"); is {
		if o.Spec.Backend.Docker == nil && o.Spec.Template.Spec.Backend.Docker == nil {
			p.settle("%s %s: it has no backend docker, and Outrigger has no other", kind, name)
		} else {
			p.settle("%s %s: write it as one of docker%s, with the fields of backend.docker in spec itself, in a pool in spec.template", kind, name, other)
		}
	}
	if strings.HasSuffix(kind, "clusters") {
		p.restart("cluster %s: its containers are not taken over, all of its machines are made again", name)
	}
	if o.Spec.Bootstrapped != nil || o.Spec.Template.Spec.Bootstrapped != nil {
		p.Settings = append(p.Settings, Moved{kind + " " + name + " bootstrapped", "no field", "remove it from the manifest, else kubectl apply refuses it"})
	}
}

// removeProvider are the commands that remove an infrastructure provider. clusterctl removes no definition of which there
// are objects, such as templates of the clusters that are gone, and does not wait. It refuses while others' machines are
// there, as it should.
func removeProvider(name, namespace string) []string {
	selector := "--selector " + capiProviderLabel + "=infrastructure-" + name
	return []string{
		`for kind in $(kubectl get crd ` + selector + ` --output name | grep --only-matching --extended-regexp '(docker|dev)[a-z]*templates[.].*'); do kubectl delete "$kind" --all --all-namespaces; done`,
		"clusterctl delete --infrastructure " + name + " --include-crd --include-namespace",
		"kubectl wait --for=delete crd " + selector + " --timeout=5m",
		"kubectl wait --for=delete namespace/" + namespace + " --timeout=5m",
	}
}

func (p *Plan) dockerSteps(clusters []string) {
	p.step("Keep the manifests of the clusters, as you applied them; objects read from the cluster have status and owners that must go. Keep the provider's version for the way back.",
		"kubectl get providers.clusterctl.cluster.x-k8s.io --all-namespaces")
	p.step("Move what runs in the clusters elsewhere, or keep its manifests and data: machines are made again.")
	p.step("Delete the clusters while Cluster API's provider still runs, since only it removes its containers.", clusters...)
	p.step("Remove the provider with its templates and definitions.", removeProvider("docker", "capd-system")...)
	p.step("Install Outrigger's, and the node image that it needs or kind's.", "clusterctl init --infrastructure outrigger", "make node-image build")
	p.step("Apply the manifests, without bootstrapped.", "kubectl apply --filename MANIFESTS", "kubectl wait --for=condition=Available clusters.cluster.x-k8s.io --all --all-namespaces --timeout=15m")
	p.back("Delete the clusters, while Outrigger's provider runs.", clusters...)
	p.back("Exchange the providers, and apply the manifests again. Cluster API from v1.15 on has no Docker kinds.",
		append(removeProvider("outrigger", "outrigger-capi-system"), "clusterctl init --infrastructure docker:VERSION", "kubectl apply --filename MANIFESTS")...)
}
