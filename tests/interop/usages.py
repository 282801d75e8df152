"""Writes ordinary values of torch, NumPy and Python in all protocols and containers.

    python usages.py FOLDER

Run it by hand with torch 2.4 and NumPy 1.26, and with the newest versions of both and ml_dtypes. `statelens scan FOLDER`
must exit with 0. There are three exceptions: jagged tensors, which are a subclass; `channels_last` in protocol 4, which no
pickler can name; and masked arrays in `.npy` files, which NumPy can't write. `tests/fixtures/usages` has some of the files.
"""
import sys, os, io, copy, pickle, collections, random, datetime, decimal, fractions, uuid, pathlib, argparse, types, warnings
warnings.simplefilter('ignore')
import numpy as np, torch
out = sys.argv[1]; os.makedirs(out, exist_ok=True)
t = torch.arange(6.).reshape(2,3)
objs = {}
objs['state_dict'] = torch.nn.Sequential(torch.nn.Linear(2,3), torch.nn.BatchNorm1d(3), torch.nn.LSTM(3,2)).state_dict()
def opt(cls, **k):
    m = torch.nn.Linear(2,2); o = cls(m.parameters(), **k); m(torch.ones(1,2)).sum().backward()
    try: o.step()
    except TypeError: o.step(lambda: torch.zeros(()))
    return o.state_dict()
for c in ['SGD','Adam','AdamW','Adagrad','Adadelta','Adamax','NAdam','RAdam','RMSprop','Rprop','ASGD','Adafactor']:
    if hasattr(torch.optim, c):
        objs['optim_'+c] = opt(getattr(torch.optim,c), lr=.1)
objs['optim_sgdm'] = opt(torch.optim.SGD, lr=.1, momentum=.9)
objs['optim_tensor_lr'] = opt(torch.optim.Adam, lr=torch.tensor(.1), capturable=False, foreach=False)
objs['sched'] = {n: f(torch.optim.SGD([torch.nn.Parameter(t.clone())], lr=.1)).state_dict() for n, f in {
    'step': lambda o: torch.optim.lr_scheduler.StepLR(o, 2), 'cos': lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 5),
    'multi': lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [1,2]), 'one': lambda o: torch.optim.lr_scheduler.OneCycleLR(o, .1, total_steps=10),
    'plateau': lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o), 'seq': lambda o: torch.optim.lr_scheduler.SequentialLR(o,[torch.optim.lr_scheduler.ConstantLR(o), torch.optim.lr_scheduler.ExponentialLR(o,.9)],[2]),
    'cyc': lambda o: torch.optim.lr_scheduler.CyclicLR(o, .1, .2), 'lambda': lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda e: 1)}.items()}
objs['nested'] = torch.nested.nested_tensor([torch.arange(2.), torch.arange(3.)])
try: objs['nested_jagged'] = torch.nested.nested_tensor([torch.arange(2.), torch.arange(3.)], layout=torch.jagged)
except Exception as e: print('jagged', e)
objs['sparse'] = {'coo': torch.eye(3).to_sparse(), 'uncoalesced': torch.sparse_coo_tensor([[0,0],[1,1]],[1.,2.],(2,2)), 'hybrid': torch.sparse_coo_tensor([[0,1]],torch.ones(2,3),(4,3)), 'csr': torch.eye(3).to_sparse_csr(), 'csc': torch.eye(3).to_sparse_csc(), 'bsr': torch.eye(4).to_sparse_bsr(2), 'bsc': torch.eye(4).to_sparse_bsc(2), 'empty': torch.sparse_coo_tensor(size=(3,3))}
objs['quant'] = {'t': torch.quantize_per_tensor(t,.1,0,torch.qint8), 'u': torch.quantize_per_tensor(t,.1,0,torch.quint8),'i': torch.quantize_per_tensor(t,.1,0,torch.qint32), 'c': torch.quantize_per_channel(t, torch.tensor([.1,.2]), torch.tensor([0,0]), 0, torch.qint8), 'f': torch.quantize_per_channel(t, torch.tensor([.1,.2]), torch.tensor([0.,0.]), 0, torch.quint8),
   'x4': torch.quantize_per_channel(torch.ones(2,4), torch.tensor([.1,.2]), torch.tensor([0.,0.]), 0, torch.quint4x2)}
p = torch.nn.Parameter(t.clone()); p2 = torch.nn.Parameter(t.clone(), requires_grad=False); p2.note = 'x'
b = t.clone(); b.attr = 3
objs['params'] = {'p': p, 'p2': p2, 'list': [p, p], 'attr': b, 'rg': t.clone().requires_grad_(), 'buffer': torch.nn.Buffer(t) if hasattr(torch.nn,'Buffer') else 0}
objs['meta'] = torch.empty(3, 2, device='meta'); objs['meta_p'] = torch.nn.Parameter(torch.empty(3, device='meta'))
dts = {}
for n in dir(torch):
    d = getattr(torch, n)
    if isinstance(d, torch.dtype):
        dts['d_'+n] = d
        try: dts['t_'+n] = torch.zeros(4, dtype=torch.uint8).view(d) if d.itemsize==1 and d not in (torch.bool,) and 'q' not in n and 'bits' not in n else torch.zeros(4, dtype=d)
        except Exception as e: pass

for k in list(dts):
    try: torch.save(dts[k], io.BytesIO())
    except Exception: del dts[k]
objs['dtypes'] = dts
objs['lazy'] = {'conj': torch.zeros(2, dtype=torch.complex64).conj(), 'neg': torch.zeros(2, dtype=torch.complex64).conj().imag, 'view': t.T, 'sub': t[1:,1:], 'size': t.shape, 'dev': torch.device('cuda', 1), 'dev2': torch.device('cpu')}
objs['storage'] = {'untyped': t.clone().untyped_storage(), 'fs': torch.FloatStorage([1,2])}
for _n,_v in {'layout': torch.sparse_coo, 'mf': torch.channels_last, 'qs': torch.per_tensor_affine}.items():
    objs['c_'+_n] = _v
objs['gen'] = {'rng': torch.get_rng_state(), 'py': random.getstate(), 'np': np.random.get_state(), 'npd': np.random.get_state(legacy=False)}
rngs = {n: getattr(np.random, n)(1) for n in ['PCG64','PCG64DXSM','MT19937','Philox','SFC64']}
objs['nprng'] = {**rngs, **{'g'+n: np.random.Generator(getattr(np.random, n)(1)) for n in rngs}, 'rs': np.random.RandomState(3), 'def': np.random.default_rng(5), 'ss': np.random.SeedSequence(4), 'ss2': np.random.SeedSequence([1,2**70]).spawn(2)[1]}
D = lambda *a, **k: np.zeros(*a, **k)
objs['np'] = {'f': np.arange(3.), '0': np.array(1), 'e': np.zeros((0,3)), 'F': np.asfortranarray(np.ones((2,3))), 'be': np.arange(3,dtype='>i4'), 's': np.array(['a','bc']), 'b': np.array([b'a']), 'o': np.array([1,'a',None,[1]],dtype=object), 'dt': np.array(['2020-01-01'],dtype='M8[D]'), 'td': np.array([1],dtype='m8[25s]'),
  'rec': np.zeros(2, dtype=[('a','i4'),('b','f8',(2,))]), 'reco': np.array([(1,'a')],dtype=[('a','i4'),('b','O')]), 'al': np.zeros(2, np.dtype([('a','i1'),('b','f8')],align=True)), 'nest': np.zeros(2,dtype=[('n',[('o','O'),('i','i2')]),('z','u1')]), 'title': np.zeros(1,dtype=[(('t','a'),'i4')]), 'sub': np.zeros(1,dtype=[('x','O',(2,))]), 'c': np.zeros(1,'c16'), 'g': np.zeros(1,'g'), 'bool': np.zeros(2,bool), 'void': np.zeros(1,'V8'), 'v0': np.zeros(2,'S0'),
  'recarray': np.rec.array([(1,2.)],dtype='i4,f4'), 'recorda': np.rec.array([(1,'x')],dtype=[('a','i4'),('b','O')]), 'matrix': np.matrix([[1,2]]),
  'ma': np.ma.array([1,2],mask=[0,1]), 'maf': np.ma.array([1.,2.],mask=[0,1],fill_value=9.), 'mao': np.ma.array(['a',None],mask=[0,1],dtype=object), 'marec': np.ma.zeros(2,dtype=[('a','i4'),('b','f4')]), 'mas': np.ma.array(['a'],fill_value='x'),
  'scalars': [np.float64(1), np.float32(1), np.int64(2), np.bool_(True), np.str_('x'), np.bytes_(b'x'), np.complex64(1), np.datetime64('2020-01-01'), np.timedelta64(1,'D'), np.float16(1), np.longdouble(1), np.uint8(3), np.void(b'xx')],
  'vrec': np.zeros(1, dtype=[('a','i4')])[0], 'rrec': np.rec.array([(1,2.)],dtype='i4,f4')[0],
  'dtypes': [np.dtype(x) for x in ['f8','O','U3','S3','V8','M8[ns]','?']] + [np.dtype([('a','i4'),('b','O')]), np.dtype(('i4',(2,2)))], 'types': [np.float32, np.ndarray, np.int64, np.generic], 'nan': np.nan}
if hasattr(np, 'dtypes') and hasattr(np.dtypes, 'StringDType'):
    objs['np']['T'] = np.array(['a','longer than that'*9], dtype=np.dtypes.StringDType()); objs['np']['Tna'] = np.array(['a',None], dtype=np.dtypes.StringDType(na_object=None)); objs['np']['Tnan'] = np.array(['a',np.nan], dtype=np.dtypes.StringDType(na_object=np.nan, coerce=False)); objs['np']['Td']=np.dtypes.StringDType()
try:
    import ml_dtypes
    objs['ml'] = {n: np.zeros(2, getattr(ml_dtypes,n)) for n in ['bfloat16','float8_e4m3fn','int4','float8_e5m2','uint2','float6_e2m3fn','float4_e2m1fn'] if hasattr(ml_dtypes,n)}
    objs['mls'] = [ml_dtypes.bfloat16(1), np.dtype(ml_dtypes.bfloat16)]
except ImportError: pass
dd = collections.defaultdict(int); dd['a']=1
dl = collections.defaultdict(list); dl['a']=[1]
cm = collections.ChainMap({'a':1},{'b':2})
dn = collections.defaultdict(collections.OrderedDict)
objs['py'] = {'set': {1,2}, 'fs': frozenset([1]), 'c': 1j, 'r': range(3), 'sl': slice(1,2), 'E': Ellipsis, 'NI': NotImplemented, 'nt': type(None), 'ba': bytearray(b'ab'), 'bb': b'\xff', 'eb': b'', 'int': int, 'dict': dict, 'obj': object(), 'dd': dd, 'dl': dl, 'dn': dn, 'dq': collections.deque([1,2],3), 'dq2': collections.deque([1]), 'cnt': collections.Counter('aab'), 'od': collections.OrderedDict(a=1), 'cm': cm, 'ud': collections.UserDict(a=1), 'ul': collections.UserList([1]), 'us': collections.UserString('x'),
  'dt': datetime.datetime.now(), 'dtz': datetime.datetime.now(datetime.timezone.utc), 'd': datetime.date.today(), 'tm': datetime.time(1,2), 'td': datetime.timedelta(3), 'tz': datetime.timezone(datetime.timedelta(hours=1),'x'), 'fold': datetime.datetime(2020,1,1,fold=1),
  'p': pathlib.Path('/a/b'), 'pp': pathlib.PurePath('a'), 'pw': pathlib.PureWindowsPath('c:/x'), 'dec': decimal.Decimal('1.5'), 'fr': fractions.Fraction(1,3), 'u': uuid.uuid4(), 'u1': uuid.uuid1(), 'safe': uuid.SafeUUID.safe, 'ns': argparse.Namespace(a=1, b=argparse.Namespace()), 'sn': types.SimpleNamespace(a=1), 'ex': [ValueError('x'), OSError(2,'no','f'), KeyError('k'), UnicodeDecodeError('utf8',b'x',0,1,'r'), StopIteration(3), KeyboardInterrupt(), ImportError('x')], 'nested': [(1,(2,)),{'a':[{}]}], 'big': 2**200, 'float': float('nan')}
ex = ValueError('x'); ex.extra = 1; objs['py']['exa'] = ex
fails = []
for n, o in objs.items():
    for suffix, save in {
        'zip.pt': lambda f: torch.save(o, f), 'legacy.pt': lambda f: torch.save(o, f, _use_new_zipfile_serialization=False),
        'p4.pt': lambda f: torch.save(o, f, pickle_protocol=4), 'p5leg.pt': lambda f: torch.save(o, f, pickle_protocol=5, _use_new_zipfile_serialization=False),
        'p0.pkl': lambda f: pickle.dump(o, open(f,'wb'), 0), 'p2.pkl': lambda f: pickle.dump(o, open(f,'wb'), 2), 'p3.pkl': lambda f: pickle.dump(o, open(f,'wb'), 3), 'p5.pkl': lambda f: pickle.dump(o, open(f,'wb'), 5)}.items():
        f = os.path.join(out, f'{n}.{suffix}')
        try: save(f)
        except Exception as e:
            fails.append((n, suffix, str(e)[:80]));
            if os.path.exists(f): os.remove(f)
if isinstance(objs.get('np'), dict):
    for k, v in objs['np'].items():
        try: np.save(os.path.join(out, f'np_{k}.npy'), v, allow_pickle=True)
        except Exception as e: fails.append((k,'npy',str(e)[:60]))
# distributed
try:
    import torch.distributed as dist, torch.distributed.checkpoint as dcp
    dist.init_process_group('gloo', init_method='file://'+os.path.join(os.path.abspath(out),'_init'), rank=0, world_size=1)
    from torch.distributed.device_mesh import init_device_mesh
    try: from torch.distributed.tensor import distribute_tensor, Shard, Replicate
    except ImportError: from torch.distributed._tensor import distribute_tensor, Shard, Replicate
    mesh = init_device_mesh('cpu', (1,))
    dt = distribute_tensor(t.clone(), mesh, [Shard(0)]); rt = distribute_tensor(t.clone(), mesh, [Replicate()])
    try:
        from torch.distributed.tensor.placement_types import Partial
        pt = [Partial(), Shard(1), Replicate()]
    except ImportError: pt=[]
    torch.save({'dt': dt, 'rt': rt, 'p': torch.nn.Parameter(dt), 'pl': pt}, os.path.join(out,'dtensor.zip.pt'))
    mesh2 = init_device_mesh('cpu', (1,1), mesh_dim_names=('a','b'))
    torch.save({'dt': distribute_tensor(t.clone(), mesh2, [Replicate(), Shard(0)])}, os.path.join(out,'dtensor2.zip.pt'))
    dcp.save({'model': {'w': t, 'd': dt}, 'opt': {'lr': .1, 'l': [1,2]}}, checkpoint_id=os.path.join(out,'dcp'))
    dist.destroy_process_group()
except Exception as e: print('dist', type(e), e)
print(torch.__version__, np.__version__, len(os.listdir(out)), fails)
