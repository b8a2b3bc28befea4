// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OpenShift's names.
const (
	openshiftConfig   = "/apis/config.openshift.io/v1"
	cccmo             = "cluster-cloud-controller-manager-operator"
	cccmoNamespace    = "openshift-cloud-controller-manager-operator"
	operandNamespace  = "openshift-cloud-controller-manager"
	operatorImages    = "cloud-controller-manager-images"
	ccmClusterOperand = "cloud-controller-manager"
)

// openshiftBundles are the bundles of OpenShift's platforms; others have no cloud controller manager.
var openshiftBundles = map[string]string{
	"AWS": "aws", "Azure": "azure", "GCP": "gcp", "IBMCloud": "ibmcloud", "Nutanix": "nutanix", "OpenStack": "openstack", "PowerVS": "powervs", "VSphere": "vsphere",
}

type infrastructure struct {
	Status struct {
		InfrastructureName   string `json:"infrastructureName"`
		ControlPlaneTopology string `json:"controlPlaneTopology"`
		PlatformStatus       struct {
			Type  string `json:"type"`
			Azure struct {
				CloudName string `json:"cloudName"`
			} `json:"azure"`
		} `json:"platformStatus"`
	} `json:"status"`
}

// bundle returns the bundle of the platform, empty if there is none.
func (i *infrastructure) bundle() string {
	if i.Status.PlatformStatus.Azure.CloudName == "AzureStackCloud" {
		return "azurestackhub"
	}
	return openshiftBundles[i.Status.PlatformStatus.Type]
}

type clusterVersion struct {
	Spec struct {
		Overrides []struct {
			Kind, Namespace, Name string
			Unmanaged             bool
		} `json:"overrides"`
	} `json:"spec"`
	Status struct {
		Desired struct {
			Version string `json:"version"`
		} `json:"desired"`
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

type clusterOperator struct {
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// planOperator plans to take the place of OpenShift's operator.
func (a *App) planOperator(ctx context.Context, c *cluster) (*Plan, error) {
	p := newPlan("cluster-cloud-controller-manager-operator", "ccm-operator-takeover.md")
	if err := c.Get(ctx, api(apps, cccmoNamespace, "deployments", cccmo), &object{}); err != nil {
		return nil, nothingOf("Deployment "+cccmoNamespace+"/"+cccmo, err)
	}
	p.found("Deployment "+cccmoNamespace+"/"+cccmo, "is replaced by ccm-operator")
	var where infrastructure
	if err := c.Get(ctx, api(openshiftConfig, "", "infrastructures", "cluster"), &where); err != nil {
		return nil, fmt.Errorf("read Infrastructure cluster: %w", err)
	}
	var version clusterVersion
	if err := c.Get(ctx, api(openshiftConfig, "", "clusterversions", "version"), &version); err != nil {
		return nil, fmt.Errorf("read ClusterVersion version: %w", err)
	}
	bundle := where.bundle()
	p.found("Infrastructure cluster", "platform %s, name %s, topology %s", where.Status.PlatformStatus.Type, where.Status.InfrastructureName, where.Status.ControlPlaneTopology)
	p.found("ClusterVersion version", "release %s", version.Status.Desired.Version)
	if bundle == "" {
		p.settle("platform %s has no cloud controller manager: there is nothing to take over", where.Status.PlatformStatus.Type)
	}
	p.checkRelease(&version)
	if err := p.operands(ctx, c); err != nil {
		return nil, err
	}
	p.operatorSteps(bundle, &where, len(version.Spec.Overrides))
	return p, nil
}

// checkRelease finds what OpenShift itself is at.
func (p *Plan) checkRelease(v *clusterVersion) {
	if meta.IsStatusConditionTrue(v.Status.Conditions, "Progressing") {
		p.settle("OpenShift is being upgraded: wait until `oc get clusterversion` says that it is done")
	}
	for _, o := range v.Spec.Overrides {
		p.found("ClusterVersion override", "%s %s/%s: keep it when you patch the list, which replaces it", o.Kind, o.Namespace, o.Name)
	}
}

// operands finds what is taken over.
func (p *Plan) operands(ctx context.Context, c *cluster) error {
	var state clusterOperator
	if err := c.Get(ctx, api(openshiftConfig, "", "clusteroperators", ccmClusterOperand), &state); err != nil {
		return fmt.Errorf("read ClusterOperator %s: %w", ccmClusterOperand, err)
	}
	for _, wrong := range []metav1.Condition{{Type: "Available", Status: metav1.ConditionFalse}, {Type: "Degraded", Status: metav1.ConditionTrue}} {
		if found := meta.FindStatusCondition(state.Status.Conditions, wrong.Type); found != nil && found.Status == wrong.Status {
			p.settle("ClusterOperator %s has %s=%s: %s", ccmClusterOperand, found.Type, found.Status, found.Message)
		}
	}
	images, err := c.configMap(ctx, cccmoNamespace, operatorImages)
	if err != nil {
		return fmt.Errorf("read ConfigMap %s/%s: %w", cccmoNamespace, operatorImages, err)
	}
	if images["images.json"] == "" {
		p.settle("ConfigMap %s/%s has no images.json, from which the operands' images come", cccmoNamespace, operatorImages)
	}
	for _, kind := range []string{"deployments", "daemonsets"} {
		all, err := list[object](ctx, c, api(apps, operandNamespace, kind), nil)
		if err != nil {
			return fmt.Errorf("list %s of %s: %w", kind, operandNamespace, err)
		}
		for i := range all {
			p.found(kind+" "+operandNamespace+"/"+all[i].Metadata.Name, "stays as it is; gets annotations ccm.outrigger.dev/...")
		}
	}
	return nil
}

// operandsTLS keeps the flags of the operands' TLS, which OpenShift's operator writes from the cluster's profile.
const operandsTLS = "tls=$(oc get deployments --namespace " + operandNamespace + " --output=json | " +
	`jq --raw-output '[.items[0].spec.template.spec.containers[0].command[2] | scan("--tls-[a-z-]+=[^ ]+")] | join(" ")')`

func (p *Plan) operatorSteps(bundle string, where *infrastructure, overrides int) {
	flags := "--platform " + bundle + " --infrastructure-name " + where.Status.InfrastructureName + " --images-file images.yaml"
	if where.Status.ControlPlaneTopology == "SingleReplica" {
		flags += " --single-replica"
	}
	p.step("See what would change: without a Deployment or DaemonSet in the output no pod restarts. A proxy needs --http-proxy and so on.",
		"oc get configmap "+operatorImages+" --namespace "+cccmoNamespace+" --output=yaml > images.yaml", operandsTLS, "ccm-operator diff "+flags+" $tls")
	list := "the override"
	if overrides > 0 {
		list = fmt.Sprintf("the override beside your %d", overrides)
	}
	p.step("Make the folder takeover, as the page says; add " + list + " to the ClusterVersion: OpenShift then upgrades to no other minor version.")
	p.step("Replace the operator.", "oc delete deployment --namespace "+cccmoNamespace+" "+cccmo, "oc apply --server-side --kustomize takeover")
	p.step("Look.", "oc get clusteroperator "+ccmClusterOperand, "oc get deployments,pods --namespace "+operandNamespace)
	p.restart("the operator itself; no pod of the operands, if the first step shows no Deployment and no DaemonSet")
	p.back("Give back, all commands of the page in their order: they take our annotations off, too.", "oc delete --kustomize takeover")
	p.back("Take the override away: OpenShift's version operator then restores its own operator within minutes, and the operands run on.")
	if strings.Contains(bundle, "azure") {
		p.restart("on Azure the first container of the pods is OpenShift's own, which ccm-operator takes from images.json")
	}
}
