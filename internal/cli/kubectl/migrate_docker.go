// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	capiInfrastructure = "infrastructure.cluster.x-k8s.io"
	capiProviderLabel  = "cluster.x-k8s.io/provider"
	capdLabel          = "infrastructure-docker"
)

// dockerKinds are the kinds that both providers have, and devKinds those that only Cluster API's has.
var (
	dockerKinds = []string{"dockerclusters", "dockermachines", "dockermachinepools", "dockerclustertemplates", "dockermachinetemplates", "dockermachinepooltemplates"}
	devKinds    = []string{"devclusters", "devmachines", "devmachinepools", "devclustertemplates", "devmachinetemplates", "devmachinepooltemplates"}
)

type dockerObject struct {
	object
	Spec struct {
		Bootstrapped *bool `json:"bootstrapped"`
		Template     struct {
			Spec struct {
				Bootstrapped *bool `json:"bootstrapped"`
			} `json:"spec"`
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
	for _, kind := range dockerKinds {
		if err := p.dockerObjects(ctx, c, kind, true); err != nil {
			return nil, err
		}
	}
	for _, kind := range devKinds {
		if err := p.dockerObjects(ctx, c, kind, false); err != nil {
			return nil, err
		}
	}
	p.dockerSteps()
	return p, nil
}

// dockerObjects finds the objects of a kind, in a version that is served: the API server converts them all to it.
func (p *Plan) dockerObjects(ctx context.Context, c *cluster, kind string, served bool) error {
	var d definition
	err := c.Get(ctx, api(definitions, "", "customresourcedefinitions", kind+"."+capiInfrastructure), &d)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the definition of %s: %w", kind, err)
	}
	version := ""
	for _, v := range d.Spec.Versions {
		if v.Served {
			version = v.Name
		}
	}
	all, err := list[dockerObject](ctx, c, api("/apis/"+capiInfrastructure+"/"+version, "", kind), nil)
	if err != nil {
		return fmt.Errorf("list %s: %w", kind, err)
	}
	if len(all) == 0 {
		return nil
	}
	p.found(kind, "%d", len(all))
	for i := range all {
		p.dockerObject(kind, &all[i], served)
	}
	return nil
}

func (p *Plan) dockerObject(kind string, o *dockerObject, served bool) {
	name := o.Metadata.Namespace + "/" + o.Metadata.Name
	switch {
	case !served:
		p.settle("%s %s: Outrigger has the Docker kinds only; write it as one of them", kind, name)
	case kind == "dockerclusters":
		p.restart("cluster %s: its containers are not taken over, all of its machines are made again", name)
	}
	if (o.Spec.Bootstrapped != nil || o.Spec.Template.Spec.Bootstrapped != nil) && served {
		p.Settings = append(p.Settings, Moved{kind + " " + name + " bootstrapped", "no field", "remove it from the manifest, else kubectl apply refuses it"})
	}
}

func (p *Plan) dockerSteps() {
	p.step("Keep the manifests of the clusters, as you applied them; objects read from the cluster have status and owners that must go.")
	p.step("Move what runs in the clusters elsewhere, or keep its manifests and data: machines are made again.")
	p.step("Delete the clusters while Cluster API's provider still runs, since only it removes its containers.", "kubectl delete clusters.cluster.x-k8s.io --all --all-namespaces --wait")
	p.step("Remove the provider with its definitions.", "clusterctl delete --infrastructure docker --include-crd --include-namespace")
	p.step("Install Outrigger's, and the node image that it needs or kind's.", "clusterctl init --infrastructure outrigger", "make node-image build")
	p.step("Apply the manifests, without bootstrapped.", "kubectl apply --filename MANIFESTS", "kubectl wait --for=condition=Available clusters.cluster.x-k8s.io --all --all-namespaces --timeout=15m")
	p.back("Delete the clusters, while Outrigger's provider runs.", "kubectl delete clusters.cluster.x-k8s.io --all --all-namespaces --wait")
	p.back("Exchange the providers, and apply the manifests again.", "clusterctl delete --infrastructure outrigger --include-crd --include-namespace",
		"clusterctl init --infrastructure docker", "kubectl apply --filename MANIFESTS")
}
