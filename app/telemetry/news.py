"""What the sampler's readings change in what is known of this machine."""

import msgspec

from app.samples import Device, DeviceLost, FieldsSeen, Inventory


def with_news(inventory: Inventory, news: DeviceLost | FieldsSeen) -> Inventory:
    """What is here after that: a lost device is still listed, but tells nothing more and no run can use it."""
    devices = (_told(device, news) if device.device == news.device else device for device in inventory.devices)
    changed = msgspec.structs.replace(inventory, devices=tuple(devices))
    if isinstance(news, FieldsSeen):
        return changed
    gpus = tuple(gpu for gpu in inventory.machine.gpus if gpu.uuid != news.device)
    return msgspec.structs.replace(changed, machine=msgspec.structs.replace(inventory.machine, gpus=gpus))


def _told(device: Device, news: DeviceLost | FieldsSeen) -> Device:
    if isinstance(news, FieldsSeen):
        # A lost device has no fields; what was seen of it before came late, from the other thread.
        return msgspec.structs.replace(device, fields=news.fields) if device.fields else device
    return msgspec.structs.replace(device, fields={}, absent={**device.absent, **dict.fromkeys(device.fields, "lost")})
