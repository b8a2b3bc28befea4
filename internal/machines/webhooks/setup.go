// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"errors"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	infrav1beta1 "github.com/outrigger/outrigger/api/infrastructure/v1beta1"
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

// SetupWithManager registers the webhooks of all kinds. The scheme of the
// manager has to know both versions of the API.
func SetupWithManager(mgr ctrl.Manager) error {
	err := errors.Join(
		register[infrav1beta1.DockerCluster](mgr, dockerCluster),
		register[infrav1beta1.DockerClusterTemplate](mgr, dockerClusterTemplate),
		register[infrav1beta1.DockerMachine](mgr, dockerMachine),
		register[infrav1beta1.DockerMachineTemplate](mgr, dockerMachineTemplate),
		register[infrav1beta1.DockerMachinePool](mgr, dockerMachinePool),
		register[infrav1beta1.DockerMachinePoolTemplate](mgr, dockerMachinePoolTemplate),
		register[infrav1beta1.OutriggerCluster](mgr, outriggerCluster),
		register[infrav1beta1.OutriggerClusterTemplate](mgr, outriggerClusterTemplate),
		register[infrav1beta1.OutriggerMachine](mgr, outriggerMachine),
		register[infrav1beta1.OutriggerMachineTemplate](mgr, outriggerMachineTemplate),
	)
	if err != nil {
		return fmt.Errorf("webhooks cannot be registered: %w", err)
	}
	return nil
}

// register registers the webhooks of one kind, which is an Older in the version that is not stored.
func register[Older, H, S any, T interface {
	object[S]
	conversion.Object[H]
}, O conversion.Object[Older]](mgr ctrl.Manager, r rules[T, S]) error {
	o := T(new(H))
	b := ctrl.NewWebhookManagedBy(mgr, o).WithValidator(r).WithConverter(conversion.Converter[H, Older, T, O])
	if _, ok := any(o).(cluster); ok {
		b = b.WithDefaulter(endpointPort[T]{})
	}
	return b.Complete()
}

// The rules of each kind.
var (
	dockerCluster = rules[*infrav1.DockerCluster, infrav1.DockerClusterSpec]{
		valid: validDockerCluster, fixed: fixedDockerCluster,
	}
	dockerMachine = rules[*infrav1.DockerMachine, infrav1.DockerMachineSpec]{
		valid: validDockerMachine,
		fixed: keepsProviderID(func(s *infrav1.DockerMachineSpec) string { return s.ProviderID }),
	}
	dockerMachinePool = rules[*infrav1.DockerMachinePool, infrav1.DockerMachinePoolSpec]{
		valid: validDockerPool,
		fixed: keepsProviderID(func(s *infrav1.DockerMachinePoolSpec) string { return s.ProviderID }),
	}
	outriggerCluster = rules[*infrav1.OutriggerCluster, infrav1.OutriggerClusterSpec]{
		valid: validOutriggerCluster, fixed: fixedOutriggerCluster, fixedObject: fixedProvider,
	}
	outriggerMachine = rules[*infrav1.OutriggerMachine, infrav1.OutriggerMachineSpec]{
		valid: validOutriggerMachine,
		fixed: keepsProviderID(func(s *infrav1.OutriggerMachineSpec) string { return s.ProviderID }),
	}

	dockerClusterTemplate     = template[*infrav1.DockerClusterTemplate](validDockerCluster)
	dockerMachineTemplate     = template[*infrav1.DockerMachineTemplate](validDockerMachine)
	dockerMachinePoolTemplate = template[*infrav1.DockerMachinePoolTemplate](validDockerPool)
	outriggerClusterTemplate  = template[*infrav1.OutriggerClusterTemplate](validOutriggerCluster)
	outriggerMachineTemplate  = template[*infrav1.OutriggerMachineTemplate](validOutriggerMachine)
)
