// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	convert "sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/machines/conversion"
)

// +kubebuilder:webhook:verbs=create;update,path=/mutate-infrastructure-cluster-x-k8s-io-v1beta2-dockercluster,mutating=true,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=dockerclusters,versions=v1beta2,name=default.dockercluster.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1
// +kubebuilder:webhook:verbs=create;update,path=/mutate-infrastructure-cluster-x-k8s-io-v1beta2-outriggercluster,mutating=true,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=outriggerclusters,versions=v1beta2,name=default.outriggercluster.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1
// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1beta2-dockercluster,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=dockerclusters,versions=v1beta2,name=validation.dockercluster.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1
// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1beta2-dockerclustertemplate,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=dockerclustertemplates,versions=v1beta2,name=validation.dockerclustertemplate.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1
// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1beta2-dockermachine,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=dockermachines,versions=v1beta2,name=validation.dockermachine.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1
// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1beta2-dockermachinetemplate,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=dockermachinetemplates,versions=v1beta2,name=validation.dockermachinetemplate.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1
// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1beta2-dockermachinepool,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=dockermachinepools,versions=v1beta2,name=validation.dockermachinepool.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1
// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1beta2-dockermachinepooltemplate,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=dockermachinepooltemplates,versions=v1beta2,name=validation.dockermachinepooltemplate.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1
// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1beta2-outriggercluster,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=outriggerclusters,versions=v1beta2,name=validation.outriggercluster.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1
// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1beta2-outriggerclustertemplate,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=outriggerclustertemplates,versions=v1beta2,name=validation.outriggerclustertemplate.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1
// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1beta2-outriggermachine,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=outriggermachines,versions=v1beta2,name=validation.outriggermachine.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1
// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1beta2-outriggermachinetemplate,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=outriggermachinetemplates,versions=v1beta2,name=validation.outriggermachinetemplate.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

var spec = field.NewPath("spec")

// SetupWithManager registers the webhooks of all kinds. The scheme of the
// manager has to know both versions of the API.
func SetupWithManager(mgr ctrl.Manager) error {
	for _, setup := range []func(ctrl.Manager) error{
		setupClusters, setupClusterTemplates, setupMachines, setupMachineTemplates, setupPools,
	} {
		if err := setup(mgr); err != nil {
			return fmt.Errorf("webhooks cannot be registered: %w", err)
		}
	}
	return nil
}

type converter func(*runtime.Scheme) (convert.Converter, error)

// register registers a kind that is only validated and converted.
func register[T client.Object](mgr ctrl.Manager, o T, v admission.Validator[T], c converter) error {
	return ctrl.NewWebhookManagedBy(mgr, o).WithValidator(v).WithConverter(c).Complete()
}

func setupClusters(mgr ctrl.Manager) error {
	err := ctrl.NewWebhookManagedBy(mgr, &infrav1.DockerCluster{}).
		WithDefaulter(endpointPort[*infrav1.DockerCluster]{}).
		WithValidator(dockerCluster).WithConverter(conversion.With(conversion.DockerCluster, conversion.DockerClusterV1Beta1)).Complete()
	if err != nil {
		return err
	}
	return ctrl.NewWebhookManagedBy(mgr, &infrav1.OutriggerCluster{}).
		WithDefaulter(endpointPort[*infrav1.OutriggerCluster]{}).
		WithValidator(outriggerCluster).WithConverter(conversion.OutriggerCluster.Converter).Complete()
}

func setupClusterTemplates(mgr ctrl.Manager) error {
	if err := register(mgr, &infrav1.DockerClusterTemplate{}, dockerClusterTemplate, conversion.With(conversion.DockerClusterTemplate, conversion.DockerClusterTemplateV1Beta1)); err != nil {
		return err
	}
	return register(mgr, &infrav1.OutriggerClusterTemplate{}, outriggerClusterTemplate, conversion.OutriggerClusterTemplate.Converter)
}

func setupMachines(mgr ctrl.Manager) error {
	if err := register(mgr, &infrav1.DockerMachine{}, dockerMachine, conversion.With(conversion.DockerMachine, conversion.DockerMachineV1Beta1)); err != nil {
		return err
	}
	return register(mgr, &infrav1.OutriggerMachine{}, outriggerMachine, conversion.OutriggerMachine.Converter)
}

func setupMachineTemplates(mgr ctrl.Manager) error {
	if err := register(mgr, &infrav1.DockerMachineTemplate{}, dockerMachineTemplate, conversion.With(conversion.DockerMachineTemplate, conversion.DockerMachineTemplateV1Beta1)); err != nil {
		return err
	}
	return register(mgr, &infrav1.OutriggerMachineTemplate{}, outriggerMachineTemplate, conversion.OutriggerMachineTemplate.Converter)
}

func setupPools(mgr ctrl.Manager) error {
	if err := register(mgr, &infrav1.DockerMachinePool{}, dockerMachinePool, conversion.With(conversion.DockerMachinePool, conversion.DockerMachinePoolV1Beta1)); err != nil {
		return err
	}
	return register(mgr, &infrav1.DockerMachinePoolTemplate{}, dockerMachinePoolTemplate, conversion.With(conversion.DockerMachinePoolTemplate, conversion.DockerMachinePoolTemplateV1Beta1))
}
