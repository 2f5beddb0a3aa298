import torch,time,numpy as np
from tideline.numerics.labels.scores import *
from tideline.numerics.labels.confidence import tally
from sklearn.metrics import *
torch.set_num_threads(1)
for n,K in ((4,10),(50,10),(500,10),(5000,10),(3000,300)):
    g=torch.Generator().manual_seed(1)
    o=torch.randn(n,K,generator=g); y=(o+1.2*torch.randn(n,K,generator=g)).argmax(1)
    p=probabilities(o); m=confusion(p.argmax(1),y,K)
    t=time.time(); c=counted(m,n,3); t1=time.time(); a=auroc_score(p,y,3); t2=time.time(); e=calibration_score(tally(o,y),3); t3=time.time(); cb=counted_by_class(by_class(m),n,3)
    print(n,K,[f"{1e3*x:.2f}" for x in (t1-t,t2-t1,t3-t2,time.time()-t3)], c, cb, a, e)
    yy=y.numpy(); gg=p.argmax(1).numpy()
    assert abs(c['balanced_accuracy'].value-balanced_accuracy_score(yy,gg))<1e-12
    assert abs(c['macro_f1'].value-f1_score(yy,gg,average='macro'))<1e-12
    if a: 
        ref=np.mean([roc_auc_score(yy==k,p[:,k]) for k in range(K) if 0<(yy==k).sum()<n]); assert abs(a.value-ref)<1e-12
